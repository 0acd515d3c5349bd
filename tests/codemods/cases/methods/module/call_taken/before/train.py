import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def without_hooks(model: torch.nn.Module) -> None:
    for part in model.modules():
        if isinstance(part, FSDP):
            setattr(part, "forward", part.module.__call__)


def main(model: torch.nn.Module) -> None:
    model = FSDP(model)
    without_hooks(model)
    print(model.module.__call__(torch.ones(2)))
