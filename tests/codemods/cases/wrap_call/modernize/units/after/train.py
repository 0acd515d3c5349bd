from fsdp2_sharding import shard_model
from policies import fine_tuning_policy, only_trained


def sharded(model, adapter, layer):
    model = shard_model(model, auto_wrap_policy=fine_tuning_policy(layer))
    adapter = shard_model(adapter, auto_wrap_policy=only_trained())
    return model, adapter
