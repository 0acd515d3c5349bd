import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block, Model, batch, loss_of


def scaled():
    return ShardedGradScaler(enabled=False)


def asked_for(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)


def main(out):
    model = Model()
    model = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        ignored_states=list(model.head.parameters()),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    other = FSDP(Model(), device_id=torch.device("cpu"), use_orig_params=True)
    of_other = torch.optim.SGD(other.parameters(), lr=0.01)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    of_other.zero_grad()
    if len(losses) > 2:
        asked_for(model)
    return {"model": model, "losses": losses}
