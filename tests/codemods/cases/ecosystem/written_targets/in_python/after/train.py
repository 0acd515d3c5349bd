from unittest import mock

import hydra

# TODO(fsdp-migrate FM642): name a function of your own that calls `fully_shard` on the
#   units and the model and gives the model back, with settings of `fully_shard`
WRAPPER = {
    "_target_": "torch.distributed.fsdp.FullyShardedDataParallel",
    "sharding_strategy": {"_target_": "hydra.utils.get_object", "path": "torch.distributed.fsdp.api.ShardingStrategy.NO_SHARD"},
}
SHARD = {"_target_": "torch.distributed.fsdp.fully_shard"}
SAID = "torch.distributed.fsdp.FullyShardedDataParallel is what we had"


def build(model):
    "torch.distributed.fsdp.FullyShardedDataParallel"
    # TODO(fsdp-migrate FM642): name what stands in its place after the rewrite: see
    #   `explain clip_grad_norm_`
    with mock.patch("torch.distributed.fsdp.FullyShardedDataParallel.clip_grad_norm_"):
        return hydra.utils.instantiate(WRAPPER)(model)
