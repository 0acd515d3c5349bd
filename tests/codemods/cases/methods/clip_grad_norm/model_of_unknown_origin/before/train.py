from registry import models
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model):
    return FSDP(model)


def step(name, optimizer):
    model = models[name]
    model.clip_grad_norm_(1.0)
    optimizer.step()
