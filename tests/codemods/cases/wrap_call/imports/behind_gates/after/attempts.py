import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

try:
    HAS_FSDP = True
except ImportError:
    HAS_FSDP = False

from model import Block


def wrap_value(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def weights(model):
    if HAS_FSDP and isinstance(model, FSDPModule):
        return get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True)
        )
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


def is_sharded(model):
    return isinstance(model, FSDPModule)
