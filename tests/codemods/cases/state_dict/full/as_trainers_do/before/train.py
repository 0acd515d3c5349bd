import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from checkpoints import Trainer, load_optimizer, save_model, save_optimizer
from model import Block, Model, batch, loss_of

POLICY = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})


def main(out):
    torch.manual_seed(3)
    rank = dist.get_rank()
    model = FSDP(Model(), auto_wrap_policy=POLICY, device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    trainer = Trainer(model, optimizer, scheduler, out)
    losses = []
    for step in range(4):
        if step == 2:
            save_model(model, rank, out / "latest" / "model.pt")
            save_optimizer(model, optimizer, rank, out / "optim.pt")
            dist.barrier()
            load_optimizer(model, optimizer, rank, out / "optim.pt")
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    trainer.save()
    trainer.save_both()
    return {"model": model, "losses": losses}
