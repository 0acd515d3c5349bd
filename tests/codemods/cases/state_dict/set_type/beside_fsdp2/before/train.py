from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType, fully_shard


def wrap(model, kind):
    model = FSDP(model, use_orig_params=True)
    FSDP.set_state_dict_type(model, kind)
    return model


def shard(model):
    return fully_shard(model)


def optimizer_state(model, optimizer):
    if isinstance(model, FSDPModule):
        return get_optimizer_state_dict(model, optimizer)
    return FSDP.optim_state_dict(model, optimizer)


def model_state(model):
    options = StateDictOptions(full_state_dict=True)
    return get_model_state_dict(model, options=options)


def main(model):
    return wrap(model, StateDictType.FULL_STATE_DICT)
