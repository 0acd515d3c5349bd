from torch.distributed.fsdp import FSDPModule, fully_shard


def to_fsdp(model) -> FSDPModule:
    fully_shard(model)
    return model
