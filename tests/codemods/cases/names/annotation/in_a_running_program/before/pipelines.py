from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple, Union, cast

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

import model as models


@dataclass
class Holder:
    fsdp: FSDP
    others: List[FSDP]
    maybe: Optional["FSDP"] = None


def setup(width: int) -> FSDP:
    model: FSDP = FSDP(
        models.Model(width), device_id=torch.device("cpu"), use_orig_params=True
    )
    return model


def loss(model: Union[DDP, FSDP, nn.Module], step: int) -> torch.Tensor:
    return models.loss_of(model, models.batch(step))


def first(found: Tuple[FSDP, ...] | Dict[str, FSDP]) -> "FSDP":
    return cast(FSDP, found[0])


def clip(model: "FSDP", max_norm: float) -> torch.Tensor:
    return model.clip_grad_norm_(max_norm)
