from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple, Union, cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel as DDP

import model as models
from fsdp2_sharding import shard_model


@dataclass
class Holder:
    fsdp: FSDPModule
    others: List[FSDPModule]
    maybe: Optional["FSDPModule"] = None


def setup(width: int) -> FSDPModule:
    model: FSDPModule = shard_model(models.Model(width), device_id=torch.device("cpu"))
    return model


def loss(model: Union[DDP, FSDPModule, nn.Module], step: int) -> torch.Tensor:
    return models.loss_of(model, models.batch(step))


def first(found: Tuple[FSDPModule, ...] | Dict[str, FSDPModule]) -> "FSDPModule":
    return cast(FSDPModule, found[0])


def clip(model: "FSDPModule", max_norm: float) -> torch.Tensor:
    return nn.utils.clip_grad_norm_(model.parameters(), max_norm).full_tensor()
