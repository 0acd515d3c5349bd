from accelerate import FullyShardedDataParallelPlugin
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy

# TODO(fsdp-migrate FM202): give FullyShardedDataParallelPlugin its FSDP2 settings
precision = MixedPrecision()
# TODO(fsdp-migrate FM621): set `fsdp_version=2`, `reshard_after_forward=` True (False
#   for _HYBRID_SHARD_ZERO2) and give `Accelerator` a
#   `ParallelismConfig(dp_replicate_size=<machines>, dp_shard_size=<processes of one
#   machine>)`
hybrid = FullyShardedDataParallelPlugin(sharding_strategy=ShardingStrategy.HYBRID_SHARD)
# TODO(fsdp-migrate FM621): make a `MixedPrecisionPolicy` with the same param_dtype and
#   reduce_dtype of it, and set `fsdp_version=2`
elsewhere = FullyShardedDataParallelPlugin(mixed_precision_policy=precision)
