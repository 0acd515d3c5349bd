"""What FSDP1's wrapper did in training and checkpoints, for models sharded with FSDP2.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_optimizer_state_dict,
)


def load_full_optimizer(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    *,
    broadcast: bool = False,
) -> None:
    """Load whole optimizer state, from every rank or (`broadcast`) from rank 0."""
    if state:
        # One `step` tensor can be shared by many parameters: each would count it up.
        moments = {
            name: {
                k: v.clone() if isinstance(v, torch.Tensor) else v
                for k, v in values.items()
            }
            for name, values in state["state"].items()
        }
        state = {**state, "state": moments}
    sent = [
        [{**group, "params": []} for group in (state or {}).get("param_groups", ())]
    ]
    if broadcast:
        dist.broadcast_object_list(sent)
    for group, saved in zip(optimizer.param_groups, sent[0]):
        # torch stops at what only saved groups have: a schedule's `initial_lr`.
        group.update({key: saved[key] for key in saved.keys() - group.keys()})
    for group in optimizer.param_groups:
        # torch makes empty state by a step with zero gradients: 0 / (0 + eps).
        if group.get("eps") == 0:
            group["eps"] = 1.0  # until the state's own is loaded
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=broadcast)
    set_optimizer_state_dict(model, optimizer, state or {}, options=options)
