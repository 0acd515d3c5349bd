"""Converts FSDP1 checkpoints into per-parameter ones that FSDP2 loads: bytes -> contents -> plan -> files."""
