from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

from tables import rows_of


def first_rows(model):
    fully_shard(model)
    state = get_model_state_dict(model)
    for value in state.values():
        # TODO(fsdp-migrate FM534): take `DTensor` apart as well (`to_local()`,
        #   `full_tensor()`) where state dicts of the rewritten program come by
        if isinstance(value, ShardedTensor):
            print(value.metadata())
    return {name: rows_of(state, name) for name in state}
