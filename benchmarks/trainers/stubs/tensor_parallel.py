"""Stands in for tensor_parallel, which the FSDP trainer imports and does not use."""
