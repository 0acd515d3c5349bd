import torch
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy

from model import Block

WHOLE = MixedPrecision(
    param_dtype=torch.float32, reduce_dtype=torch.float32, cast_forward_inputs=True
)


class Settings:
    def __init__(self, model):
        self.head = model.head

    def of_unit(self, module):
        if module is self.head:
            return {"mixed_precision": WHOLE, "use_orig_params": True}
        if isinstance(module, Block):
            return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
        return False
