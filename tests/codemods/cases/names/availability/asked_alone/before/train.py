try:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
except ImportError:
    FSDP = None


def choose(model):
    has_fsdp = FSDP is not None
    return FSDP(model) if has_fsdp else model
