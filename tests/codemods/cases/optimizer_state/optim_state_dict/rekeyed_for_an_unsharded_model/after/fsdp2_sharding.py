"""What FSDP1's wrapper did in training and checkpoints, for models sharded with FSDP2.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import enum
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor


def full_tensors(
    state: dict[str, Any], *, offload_to_cpu: bool = False, rank0_only: bool = False
) -> dict[str, Any]:
    """A state dict with whole tensors in place of shards; every rank has to call.

    `rank0_only` is about the first of the ranks that share the tensors.
    """
    is_first = not dist.is_initialized() or dist.get_rank() == 0

    def whole(value: Any) -> Any:
        nonlocal is_first
        if isinstance(value, dict):
            return {key: whole(item) for key, item in value.items()}
        if isinstance(value, DTensor):
            is_first = not any(value.device_mesh.get_coordinate() or ())
            value = value.full_tensor()
        if rank0_only and not is_first:
            return None
        if offload_to_cpu and isinstance(value, torch.Tensor):
            return value.cpu()
        return value

    full = whole(state)
    return full if is_first or not rank0_only else {}


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


class OptimStateKeyType(enum.Enum):
    """What optimizer state goes by: names of parameters, or their numbers."""

    PARAM_NAME = enum.auto()
    PARAM_ID = enum.auto()

    @classmethod
    def _missing_(cls, value: object) -> object:
        """A member of FSDP1's own enum, or of another module like this, by name."""
        return cls.__members__.get(value.name) if isinstance(value, enum.Enum) else None


def parameter_names(model: nn.Module) -> dict[nn.Parameter, str]:
    """Parameter -> name, without what checkpointing and compiling add to it."""
    names = {}
    for name, parameter in model.named_parameters():
        for prefix in ("_checkpoint_wrapped_module.", "_orig_mod."):
            name = name.replace(prefix, "")
        names[parameter] = name
    return names


def rekey_optim_state_dict(
    optim_state_dict: dict[str, Any],
    optim_state_key_type: OptimStateKeyType,
    model: nn.Module,
    *,
    optim: torch.optim.Optimizer | None = None,
) -> dict[str, Any]:
    """Optimizer state by names of parameters or by their numbers.

    Numbers count the optimizer's parameters, or without one the model's.
    """
    parameters = list(model.parameters())
    if optim is not None:
        parameters = [p for group in optim.param_groups for p in group["params"]]
    key_type = OptimStateKeyType(optim_state_key_type)
    by_name = key_type is OptimStateKeyType.PARAM_NAME
    if all(isinstance(key, str) is by_name for key in optim_state_dict["state"]):
        return optim_state_dict
    names = parameter_names(model)
    keys: dict[Any, Any] = {}
    for number, parameter in enumerate(parameters):
        old, new = (number, names[parameter]) if by_name else (names[parameter], number)
        keys[old] = new
    state = {keys[key]: value for key, value in optim_state_dict["state"].items()}
    param_groups = [
        {**group, "params": sorted(keys[key] for key in group["params"])}
        for group in optim_state_dict["param_groups"]
    ]
    return {"state": state, "param_groups": param_groups}
