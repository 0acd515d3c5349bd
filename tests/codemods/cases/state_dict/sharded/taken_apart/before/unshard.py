import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed._tensor import DTensor
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


def sharded_state(model: FSDP):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        return model.state_dict()


def parts_of(state):
    """This rank's parts."""
    parts = {}
    for name, value in state.items():
        if isinstance(value, (list, ShardedTensor)):
            parts[name] = [shard.tensor for shard in value.local_shards()]
        elif isinstance(value, torch.Tensor):
            parts[name] = [value]
    return parts


def numbers_of(value: ShardedTensor):
    return value.numel() if isinstance(value, ShardedTensor) else 1


def either(value):
    if isinstance(value, ShardedTensor):
        return value.local_tensor()
    if isinstance(value, DTensor):
        return value.to_local()
    return value
