from fsdp2_sharding import StateDictType


def kind():
    return StateDictType.FULL_STATE_DICT
