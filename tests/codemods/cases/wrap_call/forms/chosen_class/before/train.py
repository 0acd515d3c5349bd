import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy

from model import Block, Model, batch, loss_of


class Plain(nn.Module):
    """Stands in the wrapper's place where one process trains."""

    def __init__(self, module, *args, **kwargs):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


def main(out):
    model: FSDP = (FSDP if dist.is_initialized() else Plain)(
        Model(),
        auto_wrap_policy=lambda module, recurse, **_: recurse or isinstance(module, Block),
        device_id=torch.device("cpu"),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        use_orig_params=True,
        limit_all_gathers=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    state = model.state_dict()
    if dist.get_rank() == 0:
        torch.save(state, f"{out}/model.pt")
    return {"model": model, "losses": losses}
