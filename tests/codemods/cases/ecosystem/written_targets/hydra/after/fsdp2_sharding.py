"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import enum


class BackwardPrefetch(enum.Enum):
    """When FSDP1 gathered the next parameters; FSDP2 does as BACKWARD_PRE did."""

    BACKWARD_PRE = enum.auto()
    BACKWARD_POST = enum.auto()
