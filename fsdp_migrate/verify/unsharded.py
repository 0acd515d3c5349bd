"""Turns FSDP1 into plain data parallelism in fp32, for the arm that says which side is wrong.

Every wrapper keeps whole parameters (NO_SHARD) and computes and reduces in the parameters' own dtype. What is
left of FSDP1 is one all-reduce of whole gradients.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

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
