from registry import models
from torch.distributed.fsdp import fully_shard


def shard(model):
    return fully_shard(model)


def step(name, optimizer):
    model = models[name]
    # TODO(fsdp-migrate FM301): if this is the sharded model:
    #   `torch.nn.utils.clip_grad_norm_(model.parameters(), c)`
    model.clip_grad_norm_(1.0)
    optimizer.step()
