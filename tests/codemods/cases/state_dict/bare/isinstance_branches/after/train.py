import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import FSDPModule, fully_shard


def state_of(model):
    if isinstance(model, FSDPModule):
        return get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True)
        )
    return {name: value.cpu() for name, value in model.state_dict().items()}


def main(model, sharded):
    if sharded:
        fully_shard(model)
    torch.save(state_of(model), "model.pt")
