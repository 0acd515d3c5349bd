from torch.distributed.fsdp import FullStateDictConfig

# TODO(fsdp-migrate FM516): rewrite this by hand for `fully_shard`
save_policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
