import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block, Model, batch, loss_of


def lists(model):
    """Weight decay by shape, decided before the wrap."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.5)
    model = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    return model, optimizer


def filled(model):
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            others.append(parameter)
        else:
            decayed.append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": others, "weight_decay": 0.0}],
        lr=0.01,
        weight_decay=0.5,
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
    print(scheduler.get_last_lr())
    return model, optimizer


def branch(model, is_sharded=True):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if is_sharded:
        model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
    else:
        model = model.double()
    return model, optimizer


def again(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sharded = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
    optimizer.__init__(sharded.parameters(), lr=0.01)
    return sharded, optimizer


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.model = FSDP(
            self.model, device_id=torch.device("cpu"), use_orig_params=True
        )


def main(out, form):
    if form == "attribute":
        trainer = Trainer(Model())
        model, optimizer = trainer.model, trainer.optimizer
    elif form == "lists":
        model, optimizer = lists(Model())
    elif form == "filled":
        model, optimizer = filled(Model())
    elif form == "branch":
        model, optimizer = branch(Model())
    else:
        model, optimizer = again(Model())
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
