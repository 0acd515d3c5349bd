from contextlib import nullcontext

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import FullStateDictConfig, StateDictType

from model import Block

STRATEGIES = ("none", "fsdp", "fsdp2")


def fsdp_version(model):
    if isinstance(model, FSDP):
        return 1
    elif isinstance(model, FSDPModule):
        return 2
    else:
        return 0


def state_context(model):
    if fsdp_version(model) == 1:
        # TODO(fsdp-migrate FM516): rewrite this by hand for `fully_shard`
        full = FullStateDictConfig(rank0_only=False)
        # TODO(fsdp-migrate FM401): remove it together with what only FSDP1 models need
        return FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, full)
    else:
        return nullcontext()


def full_weights(model):
    # FSDP2 has no context for this.
    if fsdp_version(model) == 2:
        return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))

    with state_context(model):
        return model.state_dict()


def shard_model(model, strategy):
    if strategy == "fsdp":
        # one flat parameter for each block
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for module in reversed(list(model.modules())):  # children before parents
            if isinstance(module, Block):
                fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif strategy == "fsdp2":
        # children before parents
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    elif strategy != "none":
        raise ValueError(strategy)
    return model
