import torch
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)
from torch.distributed.fsdp import (
    StateDictType,
    fully_shard,
)


def save(model, path, sharded):
    fully_shard(model)
    # TODO(fsdp-migrate FM401): save with
    #   `get_model_state_dict`/`get_optimizer_state_dict` and load with
    #   `set_model_state_dict`/`set_optimizer_state_dict` of
    #   `torch.distributed.checkpoint.state_dict`, then remove the context
    context = FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    with context:
        # TODO(fsdp-migrate FM402): use `get_model_state_dict(model,
        #   options=StateDictOptions(full_state_dict=True))` for whole tensors or
        #   `get_model_state_dict(model)` for shards, from
        #   `torch.distributed.checkpoint.state_dict`
        torch.save(model.state_dict(), path)
