import torch
from torch.distributed.fsdp import FSDPModule, ShardingStrategy, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block, Model, batch, loss_of

OLD_OPTIONS = {
    "auto_wrap_policy": ModuleWrapPolicy({Block}),
    "sharding_strategy": ShardingStrategy.SHARD_GRAD_OP,
    "device_id": torch.device("cpu"),
    "use_orig_params": True,
}


def wrap(model):
    return FSDP(model, **OLD_OPTIONS)


def shard(model):
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=False)
    return fully_shard(model, reshard_after_forward=False)


WAYS = {"fsdp": wrap, "fsdp2": shard}


def by_table(model, kind):
    return WAYS[kind](model)


def by_match(model, kind):
    match kind:
        case "fsdp":
            return wrap(model)
        case "fsdp2":
            return shard(model)
        case _:
            raise ValueError(kind)


def by_condition(model, kind):
    return shard(model) if kind == "fsdp2" else wrap(model)


def by_leaving(model, kind):
    if kind == "fsdp":
        return wrap(model)
    return shard(model)


def norm(model, limit):
    match model:
        case FSDP():
            return model.clip_grad_norm_(limit)
        case FSDPModule():
            total = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
            return total.full_tensor()


def main(out, kind, way):
    make = {
        "table": by_table,
        "match": by_match,
        "condition": by_condition,
        "leaving": by_leaving,
    }
    model = make[way](Model(), kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, norms = [], []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        norms.append(norm(model, 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses, "norms": norms}
