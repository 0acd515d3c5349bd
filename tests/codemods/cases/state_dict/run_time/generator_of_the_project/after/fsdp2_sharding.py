"""What FSDP1's wrapper did in training and checkpoints, for models sharded with FSDP2.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import contextlib
import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.tensor import DTensor, distribute_tensor


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
class FullStateDictConfig(StateDictConfig):
    """Where whole tensors go; `rank0_only` gives other ranks an empty dict."""

    rank0_only: bool = False


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Where shards go."""


@dataclass
class OptimStateDictConfig:
    """Whether the values of an optimizer's state dict are moved to the CPU."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """Where whole optimizer state goes; `rank0_only` gives other ranks none.

    With `rank0_only` loading takes rank 0's state for all.
    """

    rank0_only: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Where shards of optimizer state go."""


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


def load_model_state_dict(
    model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True
) -> Any:
    """Load a state dict of the kind in force; return missing and unexpected keys."""
    settings = get_state_dict_type(model)
    is_full = settings.state_dict_type is StateDictType.FULL_STATE_DICT
    options = StateDictOptions(full_state_dict=is_full, strict=strict)
    return set_model_state_dict(model, dict(state_dict), options=options)


def optim_state_dict(model: nn.Module, optim: torch.optim.Optimizer) -> dict[str, Any]:
    """Optimizer state by name, of the kind in force; every rank has to call."""
    settings = get_state_dict_type(model)
    config = settings.optim_state_dict_config
    if settings.state_dict_type is StateDictType.SHARDED_STATE_DICT:
        options = StateDictOptions(cpu_offload=config.offload_to_cpu)
        return get_optimizer_state_dict(model, optim, options=options)
    return full_tensors(
        get_optimizer_state_dict(model, optim),
        offload_to_cpu=config.offload_to_cpu,
        rank0_only=getattr(config, "rank0_only", False),
    )


def optim_state_dict_to_load(
    model: nn.Module,
    optim: torch.optim.Optimizer,
    optim_state_dict: dict[str, Any] | None,
) -> dict[str, Any]:
    """Optimizer state by parameter name as `optim.load_state_dict` takes it."""
    config = get_state_dict_type(model).optim_state_dict_config
    from_rank0 = getattr(config, "rank0_only", False)
    return numbered_optim_state(model, optim, optim_state_dict, from_rank0=from_rank0)


def numbered_optim_state(
    model: nn.Module,
    optim: torch.optim.Optimizer | None,
    state: dict[str, Any] | None,
    *,
    from_rank0: bool = False,
) -> dict[str, Any]:
    """Optimizer state by parameter name as `optim.load_state_dict` takes it.

    Whole tensors, given on every rank or (`from_rank0`) on rank 0 alone, become
    shards. Without an optimizer its groups are the saved ones.
    """
    if from_rank0:
        state = _outline_of_rank0(state)
    if state is None:
        raise ValueError("this rank has no optimizer state to load")
    names = parameter_names(model)
    groups = [
        [parameter for parameter, name in names.items() if name in group["params"]]
        for group in state["param_groups"]
    ]
    if optim is not None:
        groups = [group["params"] for group in optim.param_groups]
    moments: dict[int, Any] = {}
    param_groups: list[dict[str, Any]] = []
    count = 0
    for parameters in groups:
        numbers = list(range(count, count + len(parameters)))
        count += len(parameters)
        for number, parameter in zip(numbers, parameters):
            found = state["state"].get(names[parameter])
            if found is not None:
                moments[number] = {
                    key: _like_parameter(value, parameter, from_rank0)
                    for key, value in found.items()
                }
        own = {names[parameter] for parameter in parameters}
        saved = next(
            group
            for group in state["param_groups"]
            if own.intersection(group["params"]) or not (own or group["params"])
        )
        param_groups.append({**saved, "params": numbers})
    return {"state": moments, "param_groups": param_groups}


def _like_parameter(value: Any, parameter: nn.Parameter, from_rank0: bool) -> Any:
    """A value of a parameter's state, sharded as the parameter is."""
    if not isinstance(value, torch.Tensor):
        return value
    # A value of another shape is such as `step`, which parameters must not share.
    if isinstance(value, DTensor) or value.shape != parameter.shape:
        return value.clone()
    if value.is_meta:
        value = torch.empty_like(value, device=parameter.device)
    value = value.to(parameter.device, copy=True)
    if isinstance(parameter, DTensor):
        return distribute_tensor(value, parameter.device_mesh, parameter.placements)
    if from_rank0:
        dist.broadcast(value, src=0)
    return value


def _outline_of_rank0(state: dict[str, Any] | None) -> dict[str, Any] | None:
    """Rank 0's state; on other ranks its large tensors have shapes and no values."""
    outline: list[Any] = [None]
    if dist.get_rank() == 0 and state is not None:
        light = {
            name: {
                key: value.to("meta")
                if isinstance(value, torch.Tensor) and value.dim()
                else value
                for key, value in values.items()
            }
            for name, values in state["state"].items()
        }
        outline = [{**state, "state": light}]
    dist.broadcast_object_list(outline, src=0)
    return state if dist.get_rank() == 0 else outline[0]


def parameter_names(model: nn.Module) -> dict[nn.Parameter, str]:
    """Parameter -> name, without what checkpointing and compiling add to it."""
    names = {}
    for name, parameter in model.named_parameters():
        for prefix in ("_checkpoint_wrapped_module.", "_orig_mod."):
            name = name.replace(prefix, "")
        names[parameter] = name
    return names
