"""Turns FSDP1 into plain data parallelism in fp32, for the arm that says which side is wrong.

Every wrapper keeps whole parameters (NO_SHARD) and computes and reduces in the parameters' own dtype, and
autocast is off. What is left of FSDP1 is one all-reduce of whole gradients.

It runs on as many ranks as the arms, and not in one process: every rank then reads the data it reads there,
draws the random numbers it draws there, and takes the mean over its own tokens and batch statistics. One
process with the batches of all ranks put together would compute another loss wherever batches are uneven.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy


def apply() -> None:
    """Patch the constructor in this process."""
    build = FullyShardedDataParallel.__init__
    signature = inspect.signature(build)

    @functools.wraps(build)
    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:
        call = signature.bind(self, *arguments, **keywords)
        call.arguments["sharding_strategy"] = ShardingStrategy.NO_SHARD
        call.arguments["mixed_precision"] = None
        call.arguments["device_mesh"] = None
        if isinstance(call.arguments.get("process_group"), tuple):
            call.arguments["process_group"] = None
        build(*call.args, **call.kwargs)

    FullyShardedDataParallel.__init__ = __init__  # type: ignore[method-assign]
    _never_autocast()


def _never_autocast() -> None:
    enter = torch.amp.autocast_mode.autocast.__init__

    @functools.wraps(enter)
    def off(self: Any, *arguments: Any, **keywords: Any) -> None:
        enter(self, *arguments, **keywords)
        self._enabled = False

    torch.amp.autocast_mode.autocast.__init__ = off  # type: ignore[method-assign]
