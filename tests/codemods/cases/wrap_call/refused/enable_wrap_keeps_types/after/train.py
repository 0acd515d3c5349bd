import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import enable_wrap

# TODO(fsdp-migrate FM201): change `ShardingStrategy` together with the wrap calls that
#   take it
STRATEGIES = {"full": ShardingStrategy.FULL_SHARD, "grad": ShardingStrategy.SHARD_GRAD_OP}


# TODO(fsdp-migrate FM516): shard with `fully_shard` in place; a sharded module is an
#   `FSDPModule`
def build(make, name, wrapper=FSDP):
    """What is wrapped is wrapped in `make`."""
    # TODO(fsdp-migrate FM201): change `MixedPrecision` together with the wrap calls
    #   that take it
    precision = MixedPrecision(param_dtype=torch.bfloat16)
    # TODO(fsdp-migrate FM105): remove the block and shard what is wrapped in it with
    #   fully_shard and these settings
    with enable_wrap(wrapper_cls=wrapper, sharding_strategy=STRATEGIES[name], mixed_precision=precision):
        return make()


def whole(model, name):
    return FSDP(model, sharding_strategy=STRATEGIES[name])
