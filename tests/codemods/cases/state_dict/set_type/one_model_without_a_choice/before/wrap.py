from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


def to_fsdp(model) -> FSDP:
    model = FSDP(model)
    FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    return model


def teacher(model) -> FSDP:
    return FSDP(model)
