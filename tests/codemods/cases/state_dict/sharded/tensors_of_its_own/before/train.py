from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType

from tables import rows_of


def first_rows(model):
    model = FSDP(model)
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = model.state_dict()
    for value in state.values():
        if isinstance(value, ShardedTensor):
            print(value.metadata())
    return {name: rows_of(state, name) for name in state}
