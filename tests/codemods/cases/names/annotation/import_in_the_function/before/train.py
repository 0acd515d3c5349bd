from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision


def wrap(model, precision: MixedPrecision = MixedPrecision()) -> FSDP:
    from torch.distributed.fsdp import ShardingStrategy

    def inner(model: FSDP, strategy=ShardingStrategy.FULL_SHARD) -> FSDP:
        import torch.distributed.fsdp._traversal_utils as utils

        print(utils, MixedPrecision())
        return FSDP(model, sharding_strategy=strategy, mixed_precision=precision)

    return inner(model)
