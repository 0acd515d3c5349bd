from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Union

if TYPE_CHECKING:
    from fsdp2_sharding import MixedPrecision, ShardingStrategy

    Strategy = Union[ShardingStrategy, Literal["FULL_SHARD", "NO_SHARD"]]


def wrapped(model, strategy: Strategy, precision: MixedPrecision | None = None):
    from fsdp2_sharding import shard_model

    return shard_model(model, sharding_strategy=strategy, mixed_precision=precision)
