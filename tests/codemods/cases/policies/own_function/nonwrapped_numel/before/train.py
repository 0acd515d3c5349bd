import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Block, Model, batch, loss_of


def policy(module, recurse, nonwrapped_numel):
    if recurse:
        return True
    return isinstance(module, Block) or nonwrapped_numel >= 520


def main(out):
    model = FSDP(
        Model(),
        auto_wrap_policy=policy,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
