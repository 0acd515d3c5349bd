"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import enum
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.optim.optimizer import register_optimizer_step_post_hook
from torchao.float8 import (
    Float8LinearConfig,
    convert_to_float8_training,
    precompute_float8_dynamic_scale_for_fsdp,
)

WrapPolicy = Callable[..., bool]
"""Called with `module`, `recurse` and `nonwrapped_numel`; see `find_units`."""


class ShardingStrategy(enum.Enum):
    """What FSDP1 called the strategies; the names configuration files use."""

    FULL_SHARD = enum.auto()
    SHARD_GRAD_OP = enum.auto()
    NO_SHARD = enum.auto()
    HYBRID_SHARD = enum.auto()
    _HYBRID_SHARD_ZERO2 = enum.auto()

    @classmethod
    def _missing_(cls, value: object) -> object:
        """A member of FSDP1's own enum, or of another module like this, by name."""
        return cls.__members__.get(value.name) if isinstance(value, enum.Enum) else None


def size_based_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[nn.Module]] | None = None,
    exclude_wrap_modules: set[type[nn.Module]] | None = None,
) -> bool:
    """Modules with at least `min_num_params` parameters in no unit yet are units."""
    if recurse:
        passed_over = force_leaf_modules or {nn.MultiheadAttention}
    else:
        passed_over = exclude_wrap_modules or {nn.ModuleList, nn.ModuleDict}
    return nonwrapped_numel >= min_num_params and not isinstance(
        module, tuple(passed_over)
    )


def find_units(model: nn.Module, policy: WrapPolicy) -> list[nn.Module]:
    """Submodules that become units of their own, children before parents.

    The policy is asked twice about a module: whether to look inside, and, given how
    many of its parameters are in no unit yet, whether it is a unit itself.
    """
    units: list[nn.Module] = []
    seen: set[nn.Module] = set()

    def visit(module: nn.Module) -> int:
        """Number of the module's parameters that ended up in units."""
        seen.add(module)
        numel = sum(p.numel() for p in module.parameters())
        if not policy(module=module, recurse=True, nonwrapped_numel=numel):
            return 0
        in_units = sum(visit(child) for child in module.children() if child not in seen)
        left = numel - in_units
        if module is not model and policy(
            module=module, recurse=False, nonwrapped_numel=left
        ):
            units.append(module)
            return numel
        return in_units

    visit(model)
    return units


def training_device() -> torch.device:
    """The current accelerator, or the CPU where there is none."""
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.device(torch.accelerator.current_device_index())


def make_mesh(strategy: ShardingStrategy, device: torch.device) -> DeviceMesh:
    """1-D mesh, or (replicate, shard): hybrid strategies shard within a node."""
    world_size = dist.get_world_size()
    if strategy is ShardingStrategy.NO_SHARD:
        shape = (world_size, 1)
    elif strategy in (
        ShardingStrategy.HYBRID_SHARD,
        ShardingStrategy._HYBRID_SHARD_ZERO2,
    ):
        per_node = getattr(torch, device.type).device_count()
        shape = (world_size // per_node, per_node)
    else:
        return init_device_mesh(device.type, (world_size,), mesh_dim_names=("shard",))
    return init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))


def shard_model(
    model: nn.Module,
    *,
    sharding_strategy: ShardingStrategy | None = None,
    auto_wrap_policy: WrapPolicy | None = None,
    device_mesh: DeviceMesh | None = None,
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    strategy = ShardingStrategy(sharding_strategy or ShardingStrategy.FULL_SHARD)
    device = training_device()
    options: dict[str, Any] = {"mesh": device_mesh or make_mesh(strategy, device)}
    if strategy in (
        ShardingStrategy.SHARD_GRAD_OP,
        ShardingStrategy._HYBRID_SHARD_ZERO2,
    ):
        options["reshard_after_forward"] = False
    units = []
    if auto_wrap_policy is not None:
        units = find_units(model, auto_wrap_policy)
    for unit in units:
        fully_shard(unit, **options)
    fully_shard(model, **options)
    return model


def convert_to_float8(model: nn.Module) -> nn.Module:
    """Linear layers compute in float8, and FSDP gathers their weights in it.

    Before the model is sharded, and before its optimizer is built. Output layers keep
    their precision; so do layers of sizes that the hardware cannot take, subclasses of
    `nn.Linear`, whose callers may read the weight, and weights that are shared. After
    each step of an optimizer the scales of all weights are computed at once.
    """
    held = Counter(id(p) for m in model.modules() for p in m._parameters.values())

    def computes_in_float8(layer: nn.Module, name: str) -> bool:
        return (
            type(layer) is nn.Linear
            and held[id(layer.weight)] == 1
            and all(size % 16 == 0 for size in layer.weight.shape)
            and name.rpartition(".")[2] not in ("lm_head", "output", "head")
        )

    def compute_scales(*_: object) -> None:
        precompute_float8_dynamic_scale_for_fsdp(model)

    config = Float8LinearConfig(enable_fsdp_float8_all_gather=True)
    convert_to_float8_training(
        model, module_filter_fn=computes_in_float8, config=config
    )
    register_optimizer_step_post_hook(compute_scales)
    return model


def compile_units(model: nn.Module) -> None:
    """Compile each unit by itself: alike units share one compilation.

    In place, so that parameters keep their names and the hooks of FSDP still run.
    """
    units: list[nn.Module] = [
        m for m in model.modules() if isinstance(m, FSDPModule) and m is not model
    ]
    for unit in units or [model]:
        unit.compile()
