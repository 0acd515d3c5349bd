from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel as FSDP


def save(model: FSDP, path: str) -> "FSDP":
    print(model, path)
    return model
