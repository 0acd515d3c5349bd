"""Memory per GPU of FSDP1 and FSDP2 jobs, measured on fake tensors: what `fsdp-migrate plan` answers."""
