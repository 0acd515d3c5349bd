from trainer.fsdp2_sharding import shard_model
from trainer.parts.wrap import policy


def check(model, cfg):
    model = shard_model(model, auto_wrap_policy=policy(cfg))
    assert model is not None
