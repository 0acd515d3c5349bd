from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def stack(blocks):
    # fsdp-migrate: ignore[FM103] the old path, kept until the comparison is done
    return [FSDP(block) for block in blocks]  # fsdp-migrate: ignore[FM516]
