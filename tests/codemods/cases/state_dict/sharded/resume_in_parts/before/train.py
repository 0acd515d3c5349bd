import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from checkpoint_handler import resume, save_sharded
from model import Block, Model, batch, loss_of


def build(seed):
    torch.manual_seed(seed)
    model = FSDP(
        Model(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model, optimizer, steps):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(out):
    model, optimizer = build(3)
    losses = train(model, optimizer, range(2))
    save_sharded(model, str(out / "both"), optimizer)
    resumed, optimizer = build(5)
    resume(resumed, optimizer, str(out / "both"))
    losses += train(resumed, optimizer, range(2, 4))
    return {"model": resumed, "losses": losses}
