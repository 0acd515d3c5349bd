"""From a plan of edits to file contents."""
