from unittest import mock

import hydra

WRAPPER = {
    "_target_": "torch.distributed.fsdp.FullyShardedDataParallel",
    "sharding_strategy": {"_target_": "hydra.utils.get_object", "path": "torch.distributed.fsdp.api.ShardingStrategy.NO_SHARD"},
}
SHARD = {"_target_": "torch.distributed.fsdp.fully_shard"}
SAID = "torch.distributed.fsdp.FullyShardedDataParallel is what we had"


def build(model):
    "torch.distributed.fsdp.FullyShardedDataParallel"
    with mock.patch("torch.distributed.fsdp.FullyShardedDataParallel.clip_grad_norm_"):
        return hydra.utils.instantiate(WRAPPER)(model)
