"""Real FSDP1 and FSDP2 processes: what the converted checkpoints come from, and who has to read them."""
