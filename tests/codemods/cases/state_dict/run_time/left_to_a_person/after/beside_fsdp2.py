from contextlib import nullcontext

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType, fully_shard


def wrap(model, version):
    if version == 1:
        return fully_shard(model)
    return fully_shard(model)


def context(model, version):
    if version.fsdp_version == 1:
        # TODO(fsdp-migrate FM401): remove it together with what only FSDP1 models need
        return FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    return nullcontext()


def save(model, optimizer, plugin):
    # TODO(fsdp-migrate FM401): remove it together with what only FSDP1 models need
    chosen = FSDP.state_dict_type(model, plugin.kind) if plugin.fsdp_version == 1 else nullcontext()
    with chosen:
        # TODO(fsdp-migrate FM404): use `get_optimizer_state_dict(model, optimizer,
        #   options=...)` from `torch.distributed.checkpoint.state_dict`; its layout is
        #   the same, by parameter name
        return FSDP.optim_state_dict(model, optimizer)
