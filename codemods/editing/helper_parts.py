"""Which parts a helper module can have, and which of them use which."""

from __future__ import annotations

from codemods.editing.helper_improvement_text import IMPROVEMENT_PARTS
from codemods.editing.helper_policy_text import POLICY_PARTS
from codemods.editing.helper_state_dict_text import STATE_DICT_FUNCTIONS
from codemods.editing.helper_state_dict_types import STATE_DICT_TYPES
from codemods.editing.helper_training_text import TRAINING_PARTS

STATE_DICT_PARTS = {**STATE_DICT_TYPES, **STATE_DICT_FUNCTIONS}
TYPE_OF = {
    "sharding_strategy": "ShardingStrategy",
    "mixed_precision": "MixedPrecision",
    "cpu_offload": "CPUOffload",
}
"""Keyword of `shard_model` -> the type of its values."""
KNOWN_NAMES = frozenset(
    {*POLICY_PARTS, *IMPROVEMENT_PARTS, *TRAINING_PARTS, *STATE_DICT_PARTS, *TYPE_OF.values()}
    | {"BackwardPrefetch", "shard_model"}
)
"""Everything the repository's files can name of a helper module."""

_SETTINGS = frozenset({"StateDictSettings", "get_state_dict_type"})
NEEDED_BY = {
    "FullStateDictConfig": frozenset({"StateDictConfig"}),
    "ShardedStateDictConfig": frozenset({"StateDictConfig"}),
    "FullOptimStateDictConfig": frozenset({"OptimStateDictConfig"}),
    "ShardedOptimStateDictConfig": frozenset({"OptimStateDictConfig"}),
    "StateDictSettings": frozenset({"StateDictType", "StateDictConfig", "OptimStateDictConfig"}),
    "get_state_dict_type": frozenset({"StateDictSettings"}),
    "set_state_dict_type": _SETTINGS,
    "state_dict_type": _SETTINGS | {"set_state_dict_type"},
    "model_state_dict": _SETTINGS | {"full_tensors"},
    "load_model_state_dict": _SETTINGS,
    "optim_state_dict": _SETTINGS | {"full_tensors"},
    "optim_state_dict_to_load": _SETTINGS | {"numbered_optim_state"},
    "numbered_optim_state": frozenset({"parameter_names"}),
    "no_sync_of_either": frozenset({"no_sync"}),
    "rekey_optim_state_dict": frozenset({"parameter_names", "OptimStateKeyType"}),
}
"""Part -> the parts it uses."""

GIVEN_TO = {"StateDictType": "set_state_dict_type", "OptimStateKeyType": "rekey_optim_state_dict"}
"""Enum -> the function that takes its members from anywhere."""


def with_what_they_need(names: frozenset[str]) -> frozenset[str]:
    """The names of parts together with those of the parts they use."""
    found, waiting = set(names), list(names)
    while waiting:
        for name in NEEDED_BY.get(waiting.pop(), ()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return frozenset(found)
