import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def state_of(model):
    if isinstance(model, FSDP):
        return model.state_dict()
    return {name: value.cpu() for name, value in model.state_dict().items()}


def main(model, sharded):
    if sharded:
        model = FSDP(model)
    torch.save(state_of(model), "model.pt")
