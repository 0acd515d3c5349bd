from model import Block
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import shard_model


def written_out(model):
    # in place
    # auto_wrap_policy: one unit per block
    # limit_all_gathers: rate limiter
    # nothing else
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module)
    return fully_shard(model)


def decided_later(model, strategy):
    return shard_model(
        model,
        sharding_strategy=strategy,  # from the command line
        # limit_all_gathers: rate limiter
    )
