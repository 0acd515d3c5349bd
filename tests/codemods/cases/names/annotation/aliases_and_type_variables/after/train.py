from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar, Union

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel as DDP

AnyModel = Union["FSDPModule", DDP, nn.Module]
Wrap = Callable[[nn.Module], FSDPModule]
Sharded: TypeAlias = FSDPModule
Quoted: TypeAlias = "FSDPModule | DDP"
ModelT = TypeVar("ModelT", bound=Union[FSDPModule, nn.Module])
EitherT = TypeVar("EitherT", FSDPModule, DDP)


def same(model: ModelT) -> ModelT:
    return model


def each(models: list[FSDPModule], wrap: Wrap, last: AnyModel) -> dict[str, FSDPModule]:
    return {str(i): model for i, model in enumerate(models)}
