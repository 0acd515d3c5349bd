from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def reset(model):
    for root in FSDP.fsdp_modules(model, root_only=True):
        root.zero_grad()
