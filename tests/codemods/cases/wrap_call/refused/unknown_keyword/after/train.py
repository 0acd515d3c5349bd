from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model):
    # TODO(fsdp-migrate FM104): remove it, or rewrite this call by hand
    return FSDP(model, flatten_parameters=True)
