"""The command line: options, the one error boundary, one file per command."""
