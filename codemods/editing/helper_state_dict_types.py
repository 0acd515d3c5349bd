"""The text of the helper module's types for state dicts whose kind is decided at run time.

The names and defaults are those of FSDP1 (torch 2.6 to 2.13: `torch.distributed.fsdp.api`).
"""

from __future__ import annotations

STATE_DICT_TYPE = '''\
class StateDictType(enum.Enum):
    """What FSDP1 called the kinds of state dicts; the names configurations use."""

    FULL_STATE_DICT = enum.auto()
    LOCAL_STATE_DICT = enum.auto()
    SHARDED_STATE_DICT = enum.auto()
'''

OPTIM_STATE_KEY_TYPE = '''\
class OptimStateKeyType(enum.Enum):
    """What optimizer state goes by: names of parameters, or their numbers."""

    PARAM_NAME = enum.auto()
    PARAM_ID = enum.auto()
'''

STATE_DICT_CONFIG = '''\
@dataclass
class StateDictConfig:
    """Whether the values of a model's state dict are moved to the CPU."""

    offload_to_cpu: bool = False
'''

FULL_STATE_DICT_CONFIG = '''\
@dataclass
class FullStateDictConfig(StateDictConfig):
    """Where whole tensors go; `rank0_only` gives other ranks an empty dict."""

    rank0_only: bool = False
'''

SHARDED_STATE_DICT_CONFIG = '''\
@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Where shards go."""
'''

OPTIM_STATE_DICT_CONFIG = '''\
@dataclass
class OptimStateDictConfig:
    """Whether the values of an optimizer's state dict are moved to the CPU."""

    offload_to_cpu: bool = True
'''

FULL_OPTIM_STATE_DICT_CONFIG = '''\
@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """Where whole optimizer state goes; `rank0_only` gives other ranks none.

    With `rank0_only` loading takes rank 0's state for all.
    """

    rank0_only: bool = False
'''

SHARDED_OPTIM_STATE_DICT_CONFIG = '''\
@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Where shards of optimizer state go."""
'''

STATE_DICT_SETTINGS = '''\
@dataclass
class StateDictSettings:
    """The kind of a model's state dicts, and where their values go."""

    state_dict_type: StateDictType = StateDictType.FULL_STATE_DICT
    state_dict_config: StateDictConfig = field(default_factory=StateDictConfig)
    optim_state_dict_config: OptimStateDictConfig = field(
        default_factory=OptimStateDictConfig
    )


_settings: WeakKeyDictionary[nn.Module, StateDictSettings] = WeakKeyDictionary()
'''

STATE_DICT_TYPES = {
    "StateDictType": STATE_DICT_TYPE,
    "OptimStateKeyType": OPTIM_STATE_KEY_TYPE,
    "StateDictConfig": STATE_DICT_CONFIG,
    "FullStateDictConfig": FULL_STATE_DICT_CONFIG,
    "ShardedStateDictConfig": SHARDED_STATE_DICT_CONFIG,
    "OptimStateDictConfig": OPTIM_STATE_DICT_CONFIG,
    "FullOptimStateDictConfig": FULL_OPTIM_STATE_DICT_CONFIG,
    "ShardedOptimStateDictConfig": SHARDED_OPTIM_STATE_DICT_CONFIG,
    "StateDictSettings": STATE_DICT_SETTINGS,
}
"""Name -> text, in the order of the module."""
