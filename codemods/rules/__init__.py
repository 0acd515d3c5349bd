"""One file per FSDP1 construct; a rule's docstring is its manual page."""
