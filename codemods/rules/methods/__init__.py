"""One file per public method of FSDP1's wrapper."""
