import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block, Model, batch, loss_of


def shard(
    model,
    sharding_strategy=ShardingStrategy.FULL_SHARD,
    precision=None,
    process_group=None,
    sync=False,
):
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sharding_strategy=sharding_strategy,
        mixed_precision=precision,
        process_group=process_group,
        sync_module_states=sync,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def main(out):
    model = shard(Model(), precision=MixedPrecision(torch.bfloat16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
