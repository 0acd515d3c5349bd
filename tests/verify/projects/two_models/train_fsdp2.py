import torch
from job import Block, options, train
from torch.distributed.fsdp import fully_shard


def shard(model):
    for module in model:
        if isinstance(module, Block):
            fully_shard(module)
    fully_shard(model)
    return model


train(shard, lambda model, limit: torch.nn.utils.clip_grad_norm_(model.parameters(), limit), options())
