"""Trainers and launchers that hold FSDP1 settings: Accelerate, Transformers, Lightning, and their
configuration files."""
