from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar, Union

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

AnyModel = Union["FSDP", DDP, nn.Module]
Wrap = Callable[[nn.Module], FSDP]
Sharded: TypeAlias = FSDP
Quoted: TypeAlias = "FSDP | DDP"
ModelT = TypeVar("ModelT", bound=Union[FSDP, nn.Module])
EitherT = TypeVar("EitherT", FSDP, DDP)


def same(model: ModelT) -> ModelT:
    return model


def each(models: list[FSDP], wrap: Wrap, last: AnyModel) -> dict[str, Sharded]:
    return {str(i): model for i, model in enumerate(models)}
