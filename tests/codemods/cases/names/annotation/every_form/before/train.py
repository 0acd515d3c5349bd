from __future__ import annotations

from typing import Optional, Union, cast

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


class Holder:
    model: Optional[FSDP] = None

    def get(self) -> "Union[FSDP, DDP, nn.Module]":
        return self.model

    def certain(self) -> FSDP:
        return cast(FSDP, self.model)
