import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block, Model, batch, loss_of


def old_release(model):
    """The keyword's name up to torch 2.0."""
    frozen = [p for p in model.parameters() if not p.requires_grad]
    return FSDP(model, ignored_parameters=frozen, device_id=torch.device("cpu"))


def nothing_ignored(model):
    return FSDP(model, ignored_modules=[], device_id=torch.device("cpu"))


def main(out):
    model = Model()
    for parameter in model.embed.parameters():
        parameter.requires_grad_(False)
    model = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        ignored_states=[p for p in model.parameters() if not p.requires_grad],
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=0.01
    )
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
