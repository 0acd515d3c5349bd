from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.distributed.fsdp import fully_shard


def build(model):
    apply_activation_checkpointing(model)
    return fully_shard(model)
