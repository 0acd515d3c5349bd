from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model: FSDP | FSDPModule, path: str) -> None:
    print(model, path)


def wrapped(model) -> FSDP:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model)
