"""Names of FSDP1 in use away from the wrap call, and code around it."""
