from contextlib import nullcontext

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType, fully_shard


def wrap(model, version):
    if version == 1:
        return FSDP(model)
    return fully_shard(model)


def context(model, version):
    if version.fsdp_version == 1:
        return FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    return nullcontext()


def save(model, optimizer, plugin):
    chosen = FSDP.state_dict_type(model, plugin.kind) if plugin.fsdp_version == 1 else nullcontext()
    with chosen:
        return FSDP.optim_state_dict(model, optimizer)
