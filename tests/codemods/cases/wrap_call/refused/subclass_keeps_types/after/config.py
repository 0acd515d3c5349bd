from dataclasses import dataclass

import torch
from torch.distributed.fsdp import BackwardPrefetch, MixedPrecision, ShardingStrategy


@dataclass
class Config:
    # TODO(fsdp-migrate FM201): change `ShardingStrategy` together with the wrap calls
    #   that take it
    strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD
    # TODO(fsdp-migrate FM201): change `BackwardPrefetch` together with the wrap calls
    #   that take it
    prefetch: BackwardPrefetch = BackwardPrefetch.BACKWARD_PRE


# TODO(fsdp-migrate FM201): change `MixedPrecision` together with the wrap calls that
#   take it
PRECISION = {"bf16": MixedPrecision(param_dtype=torch.bfloat16)}
