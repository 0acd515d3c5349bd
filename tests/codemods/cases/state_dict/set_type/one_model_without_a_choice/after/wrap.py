from torch.distributed.fsdp import FSDPModule, fully_shard

from fsdp2_sharding import StateDictType, set_state_dict_type


def to_fsdp(model) -> FSDPModule:
    fully_shard(model)
    set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    return model


def teacher(model) -> FSDPModule:
    return fully_shard(model)
