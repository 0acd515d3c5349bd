from accelerate import FullyShardedDataParallelPlugin
from torch.distributed.fsdp import MixedPrecisionPolicy, ShardingStrategy

precision = MixedPrecisionPolicy()
# TODO(fsdp-migrate FM621): set `fsdp_version=2`, `reshard_after_forward=` True (False
#   for _HYBRID_SHARD_ZERO2) and give `Accelerator` a
#   `ParallelismConfig(dp_replicate_size=<machines>, dp_shard_size=<processes of one
#   machine>)`
hybrid = FullyShardedDataParallelPlugin(sharding_strategy=ShardingStrategy.HYBRID_SHARD)
elsewhere = FullyShardedDataParallelPlugin(
    fsdp_version=2, state_dict_type="FULL_STATE_DICT", mixed_precision_policy=precision
)
