import accelerate as acc
import torch.distributed.fsdp as tdf
from accelerate.utils import FullyShardedDataParallelPlugin as Plugin

first = acc.FullyShardedDataParallelPlugin(sharding_strategy=tdf.ShardingStrategy.FULL_SHARD)
second = Plugin(state_dict_type=tdf.StateDictType.SHARDED_STATE_DICT)
