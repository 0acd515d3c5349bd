"""The optimizer's state, as it is loaded and after a step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.optim import Optimizer

from fsdp_migrate.verify.probes.session import Session
from fsdp_migrate.verify.probes.shards import Holder, ParameterIndex, Slot, local_part


def write_states(
    session: Session, optimizer: Optimizer, index: ParameterIndex, step: int, *, only_counters: bool = False
) -> None:
    """Record it as that after `step`; with `only_counters`, what has one element alone."""
    for key, stretches in _states(session, optimizer, index, only_counters=only_counters).items():
        session.recorder.tensors(step, f"optimizer state {key}", stretches)


def _states(
    session: Session, optimizer: Optimizer, index: ParameterIndex, *, only_counters: bool
) -> dict[str, list[tuple[Slot, Tensor]]]:
    """Every tensor of the optimizer's state, by its key; counters are kept as tensors of one element."""
    found: dict[str, list[tuple[Slot, Tensor]]] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            holder = index.by_id.get(id(parameter))
            for key, value in optimizer.state.get(parameter, {}).items() if holder is not None else ():
                assert holder is not None
                if isinstance(value, int | float):
                    value = torch.tensor(float(value))
                if isinstance(value, Tensor) and not (only_counters and value.dim()):
                    found.setdefault(str(key), []).extend(_state_stretches(session, holder, str(key), value))
    return found


def _state_stretches(
    session: Session, holder: Holder, key: str, value: Tensor
) -> Iterator[tuple[Slot, Tensor]]:
    local = local_part(value)
    if local.numel() == 1 and (local.dim() == 0 or holder.local_numel != 1):
        for slot in holder.slots:
            yield Slot(slot.name, (), 0, 1, 0), local.reshape(1)
    elif local.numel() == holder.local_numel:
        for slot in holder.slots:
            yield slot, slot.of(local)
    elif local.numel():
        session.note(f"optimizer state {key}: its shape is not that of the parameter")
