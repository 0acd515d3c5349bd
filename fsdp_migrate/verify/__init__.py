"""Runs the FSDP1 original and the FSDP2 candidate from the same start and decides parity."""
