import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy

STRATEGIES = {"full": ShardingStrategy.FULL_SHARD, "grad": ShardingStrategy.SHARD_GRAD_OP}
PRECISIONS = {"bf16": MixedPrecision(param_dtype=torch.bfloat16), "no": None}


def towers(parts, name):
    return [FSDP(part, sharding_strategy=STRATEGIES[name]) for part in parts]


def whole(model, name):
    """Takes the same strategies, which stay torch's."""
    return FSDP(model, sharding_strategy=STRATEGIES[name])


def precise(model, name):
    """Takes another type, which moves."""
    return FSDP(model, mixed_precision=PRECISIONS[name])
