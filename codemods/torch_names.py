"""FSDP1's and FSDP2's public names, under one canonical spelling each.

Source: `torch.distributed.fsdp.__init__`, `.api`, `.wrap`, `.fully_sharded_data_parallel`,
`.sharded_grad_scaler`, torch 2.6 to 2.13. FSDP1's names are importable from several modules; the canonical
one is `torch.distributed.fsdp.<name>`, or `torch.distributed.fsdp.wrap.<name>` for the policies.
"""

from __future__ import annotations

import ast

FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"

FSDP_MODULE = (
    "torch.distributed.fsdp.FSDPModule",
    "torch.distributed._composable.fsdp.FSDPModule",
    "torch.distributed._composable.fsdp.fully_shard.FSDPModule",
)
"""The class that sharded modules of FSDP2 have, at its public places."""

CONFIG_TYPES = frozenset({"ShardingStrategy", "MixedPrecision", "CPUOffload", "BackwardPrefetch"})
"""Types of values given to the constructor; configuration files and dataclasses hold them too."""

_NO_OPTIMIZERS = ("lr_scheduler", "swa_utils")
"""Modules of `torch.optim` without optimizers."""

MIXED_PRECISION_FIELDS = (
    "param_dtype",
    "reduce_dtype",
    "buffer_dtype",
    "keep_low_precision_grads",
    "cast_forward_inputs",
    "cast_root_forward_inputs",
    "_module_classes_to_ignore",
)
"""Fields of `MixedPrecision`, in the order of its positional arguments."""

STATE_DICT_TYPES = frozenset(
    {
        "StateDictType",
        "StateDictSettings",
        "StateDictConfig",
        "FullStateDictConfig",
        "LocalStateDictConfig",
        "ShardedStateDictConfig",
        "OptimStateDictConfig",
        "FullOptimStateDictConfig",
        "LocalOptimStateDictConfig",
        "ShardedOptimStateDictConfig",
        "OptimStateKeyType",
    }
)

POLICIES = frozenset(
    {
        "transformer_auto_wrap_policy",
        "size_based_auto_wrap_policy",
        "lambda_auto_wrap_policy",
        "always_wrap_policy",
        "ModuleWrapPolicy",
        "CustomPolicy",
        "_or_policy",
        "_module_wrap_policy",
        "_Policy",
    }
)

FSDP1_NAMES = (
    frozenset({"FullyShardedDataParallel", "FlatParameter", "ShardedGradScaler"})
    | CONFIG_TYPES
    | STATE_DICT_TYPES
    | POLICIES
    | {"wrap", "enable_wrap"}
)

FSDP2_NAMES = frozenset(
    {
        "fully_shard",
        "FSDPModule",
        "UnshardHandle",
        "MixedPrecisionPolicy",
        "OffloadPolicy",
        "CPUOffloadPolicy",
        "register_fsdp_forward_method",
        "share_comm_ctx",
        "DataParallelMeshDims",
    }
)

PUBLIC_FROM = (2, 6)
"""The torch from which FSDP2's names are in `torch.distributed.fsdp`."""

_PREFIX = "torch.distributed.fsdp"
PRIVATE_HOME = "torch.distributed._composable.fsdp"
_SUBMODULES = (
    "fully_sharded_data_parallel",
    "api",
    "wrap",
    "sharded_grad_scaler",
    "flat_param",
    "_flat_param",
)


def canonical(name: str) -> str:
    """The one spelling of a torch FSDP name; other names are given back as they are."""
    if not name.startswith(_PREFIX + "."):
        return name
    head, *rest = name[len(_PREFIX) + 1 :].split(".")
    if head == "wrap" and not rest:
        return name  # the module; its function of the same name is `wrap.wrap`
    if head in _SUBMODULES and rest:
        head, *rest = rest
    if head in FSDP1_NAMES:
        home = f"{_PREFIX}.wrap" if head in POLICIES | {"wrap", "enable_wrap"} else _PREFIX
        if head == "ShardedGradScaler":
            home = f"{_PREFIX}.sharded_grad_scaler"
        return ".".join([home, head, *rest])
    return name


def at_home(name: str, torch: tuple[int, int]) -> str:
    """Where a torch release has a name that newer ones have elsewhere.

    Source: `torch/distributed/_composable/fsdp/__init__.py`, `torch/distributed/_tensor/__init__.py`, 2.4.1.
    """
    head, _, last = name.rpartition(".")
    if torch < PUBLIC_FROM and head == _PREFIX and last in FSDP2_NAMES:
        return f"{PRIVATE_HOME}.{last}"
    if torch < (2, 5) and head == "torch.distributed.tensor":
        return f"torch.distributed._tensor.{last}"
    return name


def is_fsdp_namespace(name: str) -> bool:
    """Whether a canonical dotted name lies in `torch.distributed.fsdp`."""
    return name == _PREFIX or name.startswith(_PREFIX + ".")


def is_fsdp1(name: str) -> bool:
    """Whether a canonical dotted name is FSDP1's, or private to it, rather than FSDP2's."""
    if not is_fsdp_namespace(name) or name == _PREFIX:
        return False
    head = name[len(_PREFIX) + 1 :].split(".")[0]
    if head == "_fully_shard":
        return False
    return head not in FSDP2_NAMES


def gives_way(name: str, local: str) -> bool:
    """Whether an import of torch's FSDP can be another's of the same local name: it is not FSDP2's type under
    a name of FSDP1's, as in the other branch of a gate."""
    return is_fsdp_namespace(name) and (is_fsdp1(name) or name.endswith(f".{local}"))


def is_fsdp1_import(statement: ast.ImportFrom, alias: ast.alias) -> bool:
    """Whether an import statement takes an FSDP1 name straight from torch."""
    source = statement.module or ""
    if statement.level or alias.name == "*" or not is_fsdp_namespace(source):
        return False
    return is_fsdp1(canonical(f"{source}.{alias.name}"))


def public_names_of(module: str) -> frozenset[str]:
    """What `from <module> import *` binds, for the torch modules that FSDP1 code stars."""
    if module in (_PREFIX, f"{_PREFIX}.fully_sharded_data_parallel", f"{_PREFIX}.api"):
        return FSDP1_NAMES - POLICIES - {"wrap", "enable_wrap", "ShardedGradScaler"} | FSDP2_NAMES
    if module == f"{_PREFIX}.wrap":
        return POLICIES | {"wrap", "enable_wrap"}
    return frozenset()


def is_torch_optimizer(name: str) -> bool:
    """Whether a canonical name stands for an optimizer of torch: no schedule, no average of a model."""
    return name.startswith("torch.optim.") and not any(other in name for other in _NO_OPTIMIZERS)
