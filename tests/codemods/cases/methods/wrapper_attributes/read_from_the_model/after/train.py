import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def describe(model):
    fully_shard(model)
    # TODO(fsdp-migrate FM310): compare with the model you sharded: `module is model`
    if model.check_is_root():
        # TODO(fsdp-migrate FM310): keep what your configuration says; an FSDP2 model
        #   does not remember it
        print(model.sharding_strategy, model.world_size)
    return dist.group.WORLD
