import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffload
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from model import Block, Model, batch, loss_of


def setup():
    if not dist.is_initialized():
        dist.init_process_group("nccl")


def main(out, steps):
    setup()
    torch.manual_seed(3)
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={Block}
    )
    model = FSDP(
        Model(),
        auto_wrap_policy=policy,
        cpu_offload=CPUOffload(offload_params=True),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    no_offload = CPUOffload(offload_params=False)
    teacher = FSDP(Model(), cpu_offload=no_offload, device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, norms = [], []
    for step in range(steps):
        optimizer.zero_grad()
        tokens = batch(step)
        with torch.no_grad():
            soft = loss_of(teacher, tokens)
        loss = loss_of(model, tokens) + 0.1 * soft
        loss.backward()
        norms.append(model.clip_grad_norm_(0.1).item())
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses, "norms": norms}
