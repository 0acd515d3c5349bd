from fsdp2_sharding import shard_model

try:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
except ImportError:
    FSDP = None


def choose(model):
    # TODO(fsdp-migrate FM530): every torch that has `fully_shard` has all of it: drop
    #   the question and the fallback
    has_fsdp = FSDP is not None
    return shard_model(model) if has_fsdp else model
