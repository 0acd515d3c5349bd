import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import FSDPModule

from fsdp2_sharding import ShardingStrategy, shard_model
from model import Block, Model, batch, loss_of


class Plain(nn.Module):
    """Stands in the wrapper's place where one process trains."""

    def __init__(self, module, *args, **kwargs):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


def main(out):
    model: FSDPModule = (shard_model if dist.is_initialized() else Plain)(
        Model(),
        auto_wrap_policy=lambda module, recurse, **_: recurse or isinstance(module, Block),
        device_id=torch.device("cpu"),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if dist.get_rank() == 0:
        torch.save(state, f"{out}/model.pt")
    return {"model": model, "losses": losses}
