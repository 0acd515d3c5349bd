from __future__ import annotations

from typing import Optional, Union, cast

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel as DDP


class Holder:
    model: Optional[FSDPModule] = None

    def get(self) -> "Union[FSDPModule, DDP, nn.Module]":
        return self.model

    def certain(self) -> FSDPModule:
        return cast(FSDPModule, self.model)
