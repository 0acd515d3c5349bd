from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard


def resume(model, optimizer, saved):
    fully_shard(model)
    set_optimizer_state_dict(
        model, optimizer, saved, options=StateDictOptions(full_state_dict=True)
    )
    return model
