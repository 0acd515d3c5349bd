import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from model import Block, Model, batch, loss_of


def shard(model):
    return FSDP(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        ),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def clean(name):
    return name.replace("_fsdp_wrapped_module.", "")


def main(out):
    model = shard(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with FSDP.summon_full_params(model, with_grads=True):
        grads = {n: p.grad.clone() for n, p in model.module.named_parameters()}
        grads = {clean(name): grad for name, grad in grads.items()}
        model.head.bias.grad.zero_()
        model.embed.weight.data.add_(1.0)
    with FSDP.summon_full_params(model, writeback=False, rank0_only=True):
        if dist.get_rank() == 0:
            torch.save(model.head.weight.clone(), out / "head.pt")
            model.head.weight.data.zero_()
    with FSDP.summon_full_params(model, recurse=False):
        model.head.weight.data.mul_(2.0)
    optimizer.step()
    return {"model": model, "losses": losses, "grads": grads}
