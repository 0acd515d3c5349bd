"""What FSDP1's wrapper did in training and checkpoints, for models sharded with FSDP2.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.checkpoint.storage import StorageReader


def read_sharded_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, key: str, reader: StorageReader
) -> dict[str, Any]:
    """A checkpoint's optimizer state under `key`, sharded as the optimizer is."""
    state: dict[str, Any] = {key: get_optimizer_state_dict(model, optimizer)}
    saved = reader.read_metadata().state_dict_metadata
    for number, group in enumerate(state[key]["param_groups"]):
        # What only saved groups have is read too: a schedule's `initial_lr`.
        start = ".".join([key, "param_groups", str(number), ""])
        names = {name[len(start) :] for name in saved if name.startswith(start)}
        group.update(dict.fromkeys(names - group.keys()))
    dcp.load(state, storage_reader=reader)  # type: ignore[attr-defined]
    return state
