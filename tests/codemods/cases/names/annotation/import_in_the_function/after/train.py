from torch.distributed.fsdp import FSDPModule

from fsdp2_sharding import MixedPrecision


def wrap(model, precision: MixedPrecision = MixedPrecision()) -> FSDPModule:
    from fsdp2_sharding import ShardingStrategy, shard_model

    def inner(model: FSDPModule, strategy=ShardingStrategy.FULL_SHARD) -> FSDPModule:
        import torch.distributed.fsdp._traversal_utils as utils

        # TODO(fsdp-migrate FM516): do without FSDP1's internals: `FSDPModule` has
        #   `unshard()` and `reshard()`, parameters are DTensors
        print(utils, MixedPrecision())
        return shard_model(model, sharding_strategy=strategy, mixed_precision=precision)

    return inner(model)
