from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model):
    # TODO(fsdp-migrate FM104): remove it, or rewrite this call by hand
    return FSDP(model, flatten_parameters=True)


def shard_as_torch_1_11_did(model, policy):
    # TODO(fsdp-migrate FM104): since torch 1.12 it is `auto_wrap_policy`, and
    #   `default_auto_wrap_policy` is `size_based_auto_wrap_policy`: rename both, then
    #   rewrite again
    return FSDP(model, fsdp_auto_wrap_policy=policy)
