from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(parts):
    return [FSDP(part) for part in parts]
