from policies import FSDP, ShardingStrategy, size_policy


def prepare(models, cfg):
    # TODO(fsdp-migrate FM103): build the modules first, then shard each and the model
    #   around them with fully_shard
    return [FSDP(model, auto_wrap_policy=size_policy(cfg)) for model in models]


def is_replicated(model):
    # TODO(fsdp-migrate FM516): go by what your configuration says: a sharded model does
    #   not remember its strategy; norms of its DTensors are those of the whole already
    return model.strategy == ShardingStrategy.NO_SHARD
