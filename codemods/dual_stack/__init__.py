"""FSDP1 and FSDP2 side by side: which branch is whose, and what is left when FSDP1's goes."""
