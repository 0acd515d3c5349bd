import contextlib
import functools

import torch
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


def sample(model, tokens, sharded):
    context = lambda: (  # noqa: E731
        FSDP.summon_full_params(model, writeback=False, recurse=False)
        if sharded
        else contextlib.nullcontext()
    )
    with context():
        return model.generate(tokens, steps=4)


def looked_at(model, tokens):
    with torch.no_grad(), FSDP.summon_full_params(model, writeback=False):
        sampled = model.generate(tokens, steps=2)
        return sampled, model.head.weight.abs().sum()


def main(out):
    model = shard(Model())
    before = sample(model, batch(0), True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        looks = looked_at(model, batch(step))
    after = sample(model, batch(1), True)
    return {"model": model, "losses": losses, "before": before, "after": after, "looks": looks}
