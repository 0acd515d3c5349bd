from dataclasses import dataclass

import torch

from fsdp2_sharding import MixedPrecision, ShardingStrategy


@dataclass
class Config:
    strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD
    policy: str = "layers"
    min_num_params: int = 600
    bf16: bool = False

    def precision(self):
        if not self.bf16:
            return None
        return MixedPrecision(
            param_dtype=torch.bfloat16,
            reduce_dtype=torch.float32,
            buffer_dtype=torch.bfloat16,
        )
