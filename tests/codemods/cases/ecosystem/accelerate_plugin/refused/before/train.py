from accelerate import FullyShardedDataParallelPlugin
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy

precision = MixedPrecision()
hybrid = FullyShardedDataParallelPlugin(sharding_strategy=ShardingStrategy.HYBRID_SHARD)
elsewhere = FullyShardedDataParallelPlugin(mixed_precision_policy=precision)
