from torch.distributed.distributed_c10d import _get_default_group
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp._init_utils import _init_intra_and_inter_node_groups


def shard(model, hybrid):
    process_group = None
    if hybrid:
        intra_node, inter_node = _init_intra_and_inter_node_groups(_get_default_group())
        process_group = (intra_node, inter_node)
    return FSDP(
        model,
        process_group=process_group,
        sharding_strategy=ShardingStrategy.HYBRID_SHARD
        if hybrid
        else ShardingStrategy.FULL_SHARD,
    )
