"""What FSDP1's wrapper did in training and checkpoints, for models sharded with FSDP2.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import contextlib
import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
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


class StateDictType(enum.Enum):
    """What FSDP1 called the kinds of state dicts; the names configurations use."""

    FULL_STATE_DICT = enum.auto()
    LOCAL_STATE_DICT = enum.auto()
    SHARDED_STATE_DICT = enum.auto()

    @classmethod
    def _missing_(cls, value: object) -> object:
        """A member of FSDP1's own enum, or of another module like this, by name."""
        return cls.__members__.get(value.name) if isinstance(value, enum.Enum) else None


@dataclass
class StateDictConfig:
    """Whether the values of a model's state dict are moved to the CPU."""

    offload_to_cpu: bool = False


@dataclass
class OptimStateDictConfig:
    """Whether the values of an optimizer's state dict are moved to the CPU."""

    offload_to_cpu: bool = True


@dataclass
class StateDictSettings:
    """The kind of a model's state dicts, and where their values go."""

    state_dict_type: StateDictType = StateDictType.FULL_STATE_DICT
    state_dict_config: StateDictConfig = field(default_factory=StateDictConfig)
    optim_state_dict_config: OptimStateDictConfig = field(
        default_factory=OptimStateDictConfig
    )


_settings: WeakKeyDictionary[nn.Module, StateDictSettings] = WeakKeyDictionary()


def get_state_dict_type(module: nn.Module) -> StateDictSettings:
    """What is in force; whole tensors on every rank where nothing was set."""
    return _settings.get(module) or StateDictSettings()


def set_state_dict_type(
    module: nn.Module,
    state_dict_type: StateDictType,
    state_dict_config: StateDictConfig | None = None,
    optim_state_dict_config: OptimStateDictConfig | None = None,
) -> StateDictSettings:
    """Choose what a model and its parts give; return what was in force before."""
    state_dict_type = StateDictType(state_dict_type)
    if state_dict_type is StateDictType.LOCAL_STATE_DICT:
        raise ValueError("LOCAL_STATE_DICT is of flat parameters: FSDP2 has none")
    before = get_state_dict_type(module)
    chosen = StateDictSettings(
        state_dict_type,
        state_dict_config or StateDictConfig(),
        optim_state_dict_config or OptimStateDictConfig(),
    )
    for part in module.modules():
        _settings[part] = chosen
    return before


@contextlib.contextmanager
def state_dict_type(
    module: nn.Module,
    state_dict_type: StateDictType,
    state_dict_config: StateDictConfig | None = None,
    optim_state_dict_config: OptimStateDictConfig | None = None,
) -> Iterator[None]:
    """Choose what a model and its parts give inside of the block."""
    before = set_state_dict_type(
        module, state_dict_type, state_dict_config, optim_state_dict_config
    )
    try:
        yield
    finally:
        for part in module.modules():
            _settings[part] = before


def model_state_dict(model: nn.Module) -> dict[str, Any]:
    """The model's state dict, of the kind in force; every rank has to call."""
    settings = get_state_dict_type(model)
    config = settings.state_dict_config
    if settings.state_dict_type is StateDictType.SHARDED_STATE_DICT:
        options = StateDictOptions(cpu_offload=config.offload_to_cpu)
        return get_model_state_dict(model, options=options)
    return full_tensors(
        get_model_state_dict(model),
        offload_to_cpu=config.offload_to_cpu,
        rank0_only=getattr(config, "rank0_only", False),
    )
