from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


def save(model: FSDPModule | FSDPModule, path: str) -> None:
    print(model, path)


def wrapped(model) -> FSDPModule:
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model)
