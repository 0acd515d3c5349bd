from torch.distributed.algorithms._comm_hooks import default_hooks
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(first, second, own_hook):
    first, second = FSDP(first), FSDP(second)
    first.register_comm_hook(None, default_hooks.bf16_compress_hook)
    second.register_comm_hook(state=None, hook=own_hook)
    return first, second
