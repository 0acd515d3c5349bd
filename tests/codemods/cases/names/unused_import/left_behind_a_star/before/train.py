from policies import FSDP, ShardingStrategy, size_policy


def prepare(models, cfg):
    return [FSDP(model, auto_wrap_policy=size_policy(cfg)) for model in models]


def is_replicated(model):
    return model.strategy == ShardingStrategy.NO_SHARD
