from dataclasses import dataclass

import torch
from torch.distributed.fsdp import BackwardPrefetch, MixedPrecision, ShardingStrategy


@dataclass
class Config:
    strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD
    prefetch: BackwardPrefetch = BackwardPrefetch.BACKWARD_PRE


PRECISION = {"bf16": MixedPrecision(param_dtype=torch.bfloat16)}
