"""Moves PyTorch FSDP1 training to FSDP2: code (`rewrite`), checkpoints (`convert-ckpt`), proof (`verify`)."""

__version__ = "0.1.0"
