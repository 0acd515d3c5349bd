"""What FSDP1's wrapper did in training and checkpoints, for models sharded with FSDP2.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import enum
from typing import Any

import torch
from torch import nn


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
