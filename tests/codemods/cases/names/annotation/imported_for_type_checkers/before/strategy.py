from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Union

if TYPE_CHECKING:
    from torch.distributed.fsdp.fully_sharded_data_parallel import MixedPrecision, ShardingStrategy

    Strategy = Union[ShardingStrategy, Literal["FULL_SHARD", "NO_SHARD"]]


def wrapped(model, strategy: Strategy, precision: MixedPrecision | None = None):
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, sharding_strategy=strategy, mixed_precision=precision)
