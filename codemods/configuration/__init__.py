"""Configuration files as text with places: YAML, JSON and shell, read for their meaning and edited by
span."""
