import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy

from fsdp2_sharding import MixedPrecision, shard_model

# TODO(fsdp-migrate FM201): change `ShardingStrategy` together with the wrap calls that
#   take it
STRATEGIES = {"full": ShardingStrategy.FULL_SHARD, "grad": ShardingStrategy.SHARD_GRAD_OP}
PRECISIONS = {"bf16": MixedPrecision(param_dtype=torch.bfloat16), "no": None}


def towers(parts, name):
    # TODO(fsdp-migrate FM103): build the modules first, then shard each and the model
    #   around them with fully_shard
    return [FSDP(part, sharding_strategy=STRATEGIES[name]) for part in parts]


def whole(model, name):
    """Takes the same strategies, which stay torch's."""
    return FSDP(model, sharding_strategy=STRATEGIES[name])


def precise(model, name):
    """Takes another type, which moves."""
    return shard_model(model, mixed_precision=PRECISIONS[name])
