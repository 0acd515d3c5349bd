"""Rules about FSDP1's methods, one file per method."""
