import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from model import Block, Model, batch, loss_of

CPU = torch.device("cpu")


class Worker:
    """Real weights on rank 0, nothing but shapes elsewhere; the init function is a method."""

    def __init__(self):
        self.rank = dist.get_rank()

    def init_fn(self, module):
        if self.rank != 0:
            module = module.to_empty(device=CPU, recurse=False)
        return module

    def wrap(self):
        context = torch.device("meta") if self.rank != 0 else CPU
        with context:
            module = Model()
        return FSDP(
            module,
            param_init_fn=self.init_fn,
            sync_module_states=True,
            device_id=CPU,
            use_orig_params=True,
        )


def finetuned(low_cpu):
    rank = dist.get_rank()
    if low_cpu and rank != 0:
        with torch.device("meta"):
            model = Model()
    else:
        model = Model()
    return FSDP(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        ),
        device_id=CPU,
        sync_module_states=low_cpu,
        param_init_fn=(
            (lambda module: module.to_empty(device=CPU, recurse=False))
            if low_cpu and rank != 0
            else None
        ),
        use_orig_params=True,
    )


def main(out, low_cpu):
    torch.manual_seed(3)
    policy, reference = finetuned(low_cpu), Worker().wrap()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        tokens = batch(step)
        with torch.no_grad():
            margin = loss_of(reference, tokens)
        optimizer.zero_grad()
        loss = (loss_of(policy, tokens) - margin).exp()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"policy": policy, "reference": reference, "losses": losses}
