"""One file per format that can be written."""
