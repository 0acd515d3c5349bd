from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model):
    return FSDP(model, flatten_parameters=True)


def shard_as_torch_1_11_did(model, policy):
    return FSDP(model, fsdp_auto_wrap_policy=policy)
