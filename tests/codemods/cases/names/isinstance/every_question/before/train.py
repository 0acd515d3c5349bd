import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Model

WRAPPERS = (FSDP, DDP)


def answers(model):
    kinds = (DDP, FSDP)
    found = [
        isinstance(model, FSDP),
        isinstance(model, (FSDP, DDP)),
        isinstance(model, FSDP | DDP),
        isinstance(model, WRAPPERS),
        isinstance(model, kinds),
        not isinstance(model, FSDP),
        type(model) == FSDP,
        type(model) is not FSDP,
        type(model) in (FSDP, DDP),
        type(model) not in [DDP, FSDP],
        model.__class__ is FSDP,
        issubclass(type(model), FSDP),
        type(model).__name__ == "FullyShardedDataParallel",
        model.__class__.__name__ != "FullyShardedDataParallel",
        "FullyShardedDataParallel" in str(type(model)),
        "FullyShardedDataParallel" not in type(model).__name__,
        any(isinstance(part, FSDP) for part in model.modules()),
        len(list(filter(lambda part: isinstance(part, FSDP), model.modules()))),
    ]
    match model:
        case DDP():
            found.append("DDP")
        case FSDP():
            found.append("FSDP")
        case _:
            found.append("plain")
    return found


def main(out):
    sharded = FSDP(Model(), device_id=torch.device("cpu"))
    return {"sharded": answers(sharded), "plain": answers(Model())}
