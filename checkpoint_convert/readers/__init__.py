"""One file per format that can be read."""
