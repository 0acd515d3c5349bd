from torch.distributed import fsdp


def freeze_units(model):
    for unit in fsdp.FullyShardedDataParallel.fsdp_modules(model):
        unit.requires_grad_(False)
