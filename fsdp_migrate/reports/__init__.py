"""What commands found, as text, JSON and Markdown."""
