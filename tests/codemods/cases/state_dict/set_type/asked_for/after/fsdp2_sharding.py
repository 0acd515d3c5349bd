"""What FSDP1's wrapper did in training and checkpoints, for models sharded with FSDP2.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import enum
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from torch import nn


class StateDictType(enum.Enum):
    """What FSDP1 called the kinds of state dicts; the names configurations use."""

    FULL_STATE_DICT = enum.auto()
    LOCAL_STATE_DICT = enum.auto()
    SHARDED_STATE_DICT = enum.auto()


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
