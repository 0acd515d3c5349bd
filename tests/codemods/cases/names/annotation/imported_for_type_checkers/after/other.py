from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


def save(model: FSDPModule, path: str) -> "FSDPModule":
    print(model, path)
    return model
