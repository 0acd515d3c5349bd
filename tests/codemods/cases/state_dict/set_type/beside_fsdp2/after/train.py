from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import StateDictType, full_tensors


def wrap(model, kind):
    fully_shard(model)
    return model


def shard(model):
    return fully_shard(model)


def optimizer_state(model, optimizer):
    if isinstance(model, FSDPModule):
        return get_optimizer_state_dict(model, optimizer)
    return full_tensors(get_optimizer_state_dict(model, optimizer), offload_to_cpu=True)


def model_state(model):
    options = StateDictOptions(full_state_dict=True)
    return get_model_state_dict(model, options=options)


def main(model):
    return wrap(model, StateDictType.FULL_STATE_DICT)
