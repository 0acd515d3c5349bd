"""Which rule speaks for each part of FSDP1's public surface: constructor keywords, methods, exported names.

`tests/codemods/test_ownership.py` holds this against the installed torch and against what the rules really
say; `docs/coverage.md` and `fsdp-migrate explain` are made from it.

Source: `torch.distributed.fsdp.__all__`, `torch.distributed.fsdp.wrap.__all__`, the methods that
`FullyShardedDataParallel` defines, torch 2.6 to 2.13.
"""

from __future__ import annotations

from codemods.rules.files import LEFT_OVER
from codemods.shard_call import SIGNATURE
from codemods.torch_names import FSDP2_NAMES

_TYPES = "configuration types and policies"
_KINDS = "StateDictType"

EXPORTED = {
    "FullyShardedDataParallel": "FullyShardedDataParallel",
    "ShardingStrategy": _TYPES,
    "MixedPrecision": _TYPES,
    "CPUOffload": _TYPES,
    "BackwardPrefetch": _TYPES,
    "StateDictType": _KINDS,
    "StateDictConfig": "state_dict_type",
    "FullStateDictConfig": "state_dict_type",
    "LocalStateDictConfig": "state_dict_type",
    "ShardedStateDictConfig": "state_dict_type",
    "OptimStateDictConfig": "state_dict_type",
    "FullOptimStateDictConfig": "state_dict_type",
    "LocalOptimStateDictConfig": "state_dict_type",
    "ShardedOptimStateDictConfig": "state_dict_type",
    "StateDictSettings": "set_state_dict_type",
    "OptimStateKeyType": _KINDS,
    "FlatParameter": LEFT_OVER,
    "ShardedGradScaler": "ShardedGradScaler",
}
"""Names of `torch.distributed.fsdp` -> rule."""

EXPORTED_BY_WRAP = {
    "transformer_auto_wrap_policy": _TYPES,
    "size_based_auto_wrap_policy": _TYPES,
    "lambda_auto_wrap_policy": _TYPES,
    "always_wrap_policy": _TYPES,
    "ModuleWrapPolicy": _TYPES,
    "CustomPolicy": "auto_wrap_policy",
    "enable_wrap": "enable_wrap",
    "wrap": "enable_wrap",
}
"""Names of `torch.distributed.fsdp.wrap` -> rule."""

METHODS = {
    "apply": "check_is_root",
    "check_is_root": "check_is_root",
    "clip_grad_norm_": "clip_grad_norm_",
    "flatten_sharded_optim_state_dict": "optim_state_dict_to_load",
    "forward": "forward",
    "fsdp_modules": "fsdp_modules",
    "full_optim_state_dict": "optim_state_dict",
    "get_state_dict_type": "set_state_dict_type",
    "module": "module",
    "no_sync": "no_sync",
    "optim_state_dict": "optim_state_dict",
    "optim_state_dict_to_load": "optim_state_dict_to_load",
    "register_comm_hook": "register_comm_hook",
    "rekey_optim_state_dict": "optim_state_dict",
    "scatter_full_optim_state_dict": "optim_state_dict_to_load",
    "set_state_dict_type": "set_state_dict_type",
    "shard_full_optim_state_dict": "optim_state_dict_to_load",
    "sharded_optim_state_dict": "optim_state_dict",
    "state_dict": "state_dict",
    "load_state_dict": "load_state_dict",
    "state_dict_type": "state_dict_type",
    "summon_full_params": "summon_full_params",
}
"""Methods and properties of the wrapper -> rule."""

UNCHANGED_METHODS = {
    "named_buffers": "FSDP1 took its prefix out of the names; an FSDP2 model has none",
    "named_parameters": "FSDP1 took its prefix out of the names; an FSDP2 model has none",
}
"""Methods the wrapper defined that an FSDP2 model has with the same results -> why."""

KEYWORDS = {name: name for name in SIGNATURE if name != "module"}
"""Keywords of the constructor -> rule of the same name."""

NOT_FSDP1 = FSDP2_NAMES
"""What the same modules export and belongs to FSDP2."""


def owner_of(name: str) -> str | None:
    """The rule that speaks for an FSDP1 name, method or keyword; None where none of that name is known."""
    for owners in (KEYWORDS, METHODS, EXPORTED, EXPORTED_BY_WRAP):
        if name in owners:
            return owners[name]
    return None
