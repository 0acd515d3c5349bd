import torch

from model import Model, batch, loss_of
from switch import Switch

SHARD = Switch.is_on
if SHARD:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
else:
    FSDP = None

if not Switch.is_on:
    FullyShardedDataParallel = None
else:
    from torch.distributed.fsdp import FullyShardedDataParallel


def wrap(model):
    if FSDP is None:
        return model
    return FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)


def name(model):
    if FullyShardedDataParallel is None:
        return "plain"
    return "sharded"


def main(out):
    model = wrap(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(2):
        loss = loss_of(model, batch(step))
        loss.backward()
        if FSDP is not None and isinstance(model, FSDP):
            model.clip_grad_norm_(100.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"losses": losses, "model": model}
