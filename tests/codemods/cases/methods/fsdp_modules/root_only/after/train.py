from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def reset(model):
    # TODO(fsdp-migrate FM306): name the root models here: they are the ones given last
    #   to `fully_shard`
    for root in FSDP.fsdp_modules(model, root_only=True):
        root.zero_grad()
