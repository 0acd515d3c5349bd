from fsdp2_sharding import shard_model
from settings.sharding import C


def wrap(model):
    return shard_model(model, sharding_strategy=C.s)
