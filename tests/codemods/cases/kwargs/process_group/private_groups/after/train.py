from torch.distributed.distributed_c10d import _get_default_group
from torch.distributed.fsdp._init_utils import _init_intra_and_inter_node_groups

from fsdp2_sharding import ShardingStrategy, shard_model


def shard(model, hybrid):
    process_group = None
    if hybrid:
        # TODO(fsdp-migrate FM516): leave `process_group` out: HYBRID_SHARD without it
        #   shards within each node, over a mesh that the helper module makes
        intra_node, inter_node = _init_intra_and_inter_node_groups(_get_default_group())
        process_group = (intra_node, inter_node)
    return shard_model(
        model,
        process_group=process_group,
        sharding_strategy=ShardingStrategy.HYBRID_SHARD
        if hybrid
        else ShardingStrategy.FULL_SHARD,
    )
