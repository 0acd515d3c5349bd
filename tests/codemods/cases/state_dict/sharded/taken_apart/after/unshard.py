import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed._tensor import DTensor
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import FSDPModule


def sharded_state(model: FSDPModule):
    return get_model_state_dict(model)


def parts_of(state):
    """This rank's parts."""
    parts = {}
    for name, value in state.items():
        # TODO(fsdp-migrate FM534): take `DTensor` apart as well (`to_local()`,
        #   `full_tensor()`) where state dicts of the rewritten program come by
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
