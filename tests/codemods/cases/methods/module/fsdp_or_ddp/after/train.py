from torch.nn.parallel import DistributedDataParallel as DDP

from fsdp2_sharding import shard_model


def wrap(model, sharded):
    return shard_model(model) if sharded else DDP(model)


def config_of(model, sharded):
    model = wrap(model, sharded)
    return getattr(model, "module", model).config
