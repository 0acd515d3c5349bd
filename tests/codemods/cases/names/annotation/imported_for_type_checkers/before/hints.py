from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model: FSDP, path: str) -> None:
    print(model, path)
