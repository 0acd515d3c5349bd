"""Which kind of state dict FSDP1 gives at a place: contexts, `set_state_dict_type`, callers' contexts, the
default.

Source: `torch/distributed/fsdp/fully_sharded_data_parallel.py` (`state_dict_type`, `set_state_dict_type`,
`get_state_dict_type`), `torch/distributed/fsdp/api.py` (the config classes and their defaults), torch 2.6
to 2.13."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from codemods.analysis.holding import Maybe, Sharded
from codemods.analysis.module import Module
from codemods.analysis.values import CallValue, Literal, Named, options

if TYPE_CHECKING:
    from codemods.project import Project

FSDP_CLASS = "torch.distributed.fsdp.FullyShardedDataParallel"
_CALLERS_DEPTH = 3


class Kind(enum.Enum):
    """What the values of a state dict are."""

    FULL = "FULL_STATE_DICT"
    SHARDED = "SHARDED_STATE_DICT"
    LOCAL = "LOCAL_STATE_DICT"


@dataclass(frozen=True, slots=True)
class Flags:
    """Where full tensors go.

    Attributes:
        offload_to_cpu: values are moved to the CPU.
        rank0_only: ranks other than 0 get an empty dict.
    """

    offload_to_cpu: bool
    rank0_only: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """What `state_dict()` and `FSDP.optim_state_dict()` give. The defaults are those of an untouched
    model."""

    kind: Kind = Kind.FULL
    model: Flags = Flags(offload_to_cpu=False)
    optim: Flags = Flags(offload_to_cpu=True)
    model_config: ast.expr | None = None
    optim_config: ast.expr | None = None

    @property
    def bare(self) -> Setting:
        """The same without where it was written."""
        return replace(self, model_config=None, optim_config=None)


@dataclass(frozen=True, slots=True)
class Unknown:
    """The kind cannot be told, and why."""

    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """`with FSDP.state_dict_type(model, ...):`, the call written in the `with` itself."""

    module: Module
    node: ast.With
    item: ast.withitem
    call: ast.Call
    model: ast.expr


@dataclass(frozen=True, slots=True)
class InForce:
    """The setting at a place, and the block of the same function it comes from, if any."""

    setting: Setting
    block: Block | None = None


Answer: TypeAlias = "InForce | Unknown"


def argument(call: ast.Call, position: int, *names: str) -> ast.expr | None:
    """An argument given by position or by one of its names."""
    for keyword in call.keywords:
        if keyword.arg in names:
            return keyword.value
    plain = call.args[: position + 1]
    if len(plain) > position and not any(isinstance(a, ast.Starred) for a in plain):
        return plain[position]
    return None


def setting_of(project: Project, module: Module, call: ast.Call) -> Setting | Unknown:
    """What a call of `state_dict_type` or `set_state_dict_type` chooses."""
    told = argument(call, 1, "state_dict_type")
    kind = _kind(project, module, told) if told is not None else Kind.FULL
    if kind is None:
        return Unknown("the state dict type is decided at run time")
    model_config = argument(call, 2, "state_dict_config")
    optim_config = argument(call, 3, "optim_state_dict_config")
    model = _flags(project, module, model_config, offload_default=False)
    optim = _flags(project, module, optim_config, offload_default=True)
    if model is None or optim is None:
        return Unknown("what the state dict configuration says was not found")
    return Setting(kind, model, optim, _given(model_config), _given(optim_config))


def _given(config: ast.expr | None) -> ast.expr | None:
    return None if isinstance(config, ast.Constant) else config


def _kind(project: Project, module: Module, node: ast.expr) -> Kind | None:
    found = set()
    for value in options(project.evaluate(module, node)):
        if not isinstance(value, Named) or ".StateDictType." not in value.symbol.name:
            return None
        found.add(value.symbol.name.rpartition(".")[2])
    return Kind(found.pop()) if len(found) == 1 else None


def _flags(project: Project, module: Module, node: ast.expr | None, *, offload_default: bool) -> Flags | None:
    if node is None:
        return Flags(offload_default)
    found = set()
    for value in options(project.evaluate(module, node)):
        match value:
            case Literal(None):
                found.add(Flags(offload_default))
            case CallValue() if value.function.name.endswith("StateDictConfig") and not value.spreads:
                home = value.origin.module
                offload = _bool(project, home, value, 0, "offload_to_cpu", default=offload_default)
                rank0 = _bool(project, home, value, 1, "rank0_only", default=False)
                if offload is None or rank0 is None:
                    return None
                is_full = ".Full" in value.function.name
                found.add(Flags(offload, rank0 and is_full))
            case _:
                return None
    return found.pop() if len(found) == 1 else None


def _bool(
    project: Project, module: Module, call: CallValue, position: int, name: str, *, default: bool
) -> bool | None:
    node = call.keywords.get(name)
    if node is None and position < len(call.arguments):
        node = call.arguments[position]
    if node is None:
        return default
    value = project.evaluate(module, node)
    return value.value if isinstance(value, Literal) and isinstance(value.value, bool) else None


def blocks(project: Project) -> Iterator[Block]:
    """Every `with FSDP.state_dict_type(...)` of the project."""
    for use in project.static_calls("state_dict_type"):
        item = use.module.parent(use.node)
        block = use.module.parent(item) if isinstance(item, ast.withitem) else None
        model = argument(use.node, 0, "module")
        if isinstance(item, ast.withitem) and isinstance(block, ast.With) and model is not None:
            yield Block(use.module, block, item, use.node, model)


def enclosing(project: Project, module: Module, node: ast.AST, model: ast.expr | None) -> Block | None:
    """The innermost block around a place, for that model (for any, if None)."""
    found = {block.node: block for block in blocks(project) if block.module is module}
    for parent in module.ancestors(node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return None
        block = found.get(parent) if isinstance(parent, ast.With) else None
        if block is not None and (
            model is None or same_model(project, module, model, block.module, block.model)
        ):
            return block
    return None


def same_model(
    project: Project, module: Module, node: ast.expr, other_module: Module, other: ast.expr
) -> bool:
    """Whether two expressions can hold the same sharded model."""
    if module is other_module and ast.unparse(node) == ast.unparse(other):
        return True
    ones, others = project.sharded(module, node), project.sharded(other_module, other)
    if isinstance(ones, Sharded | Maybe) and isinstance(others, Sharded | Maybe):
        return bool(ones.sites & others.sites)
    return False


def in_force(project: Project, module: Module, node: ast.AST, model: ast.expr) -> Answer:
    """The setting at `node` for the sharded model that `model` holds there."""
    block = enclosing(project, module, node, model)
    if block is not None:
        setting = setting_of(project, module, block.call)
        return setting if isinstance(setting, Unknown) else InForce(setting, block)
    if _has_kept_context(project, module, node):
        return Unknown(
            "a `state_dict_type` context that is kept in a variable or entered elsewhere is in force here"
        )
    chosen = _set_earlier(project, module, node, model) or _from_callers(
        project, module, node, _CALLERS_DEPTH
    )
    if isinstance(chosen, Unknown):
        return chosen
    return InForce(chosen or Setting())


def _has_kept_context(project: Project, module: Module, node: ast.AST) -> bool:
    """Whether a context that is not written in a `with` itself can be in force at a place."""
    for parent in module.ancestors(node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            break
        if isinstance(parent, ast.With):
            for item in parent.items:
                for value in options(project.evaluate(module, item.context_expr)):
                    if (
                        isinstance(value, CallValue)
                        and value.function.name == f"{FSDP_CLASS}.state_dict_type"
                    ) and value.origin.node is not item.context_expr:
                        return True
    entered = (use for use in project.static_calls("state_dict_type") if use.module is module)
    return any(
        isinstance(call := module.parent(use.node), ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "enter_context"
        and module.function(call) is module.function(node)
        and call.lineno <= getattr(node, "lineno", 0)
        for use in entered
    )


def _set_earlier(
    project: Project, module: Module, node: ast.AST, model: ast.expr
) -> Setting | Unknown | None:
    """What `FSDP.set_state_dict_type` chose: the last call before in the same function, else all must
    agree."""
    here, elsewhere = [], []
    for use in project.static_calls("set_state_dict_type"):
        target = argument(use.node, 0, "module")
        if target is None or not same_model(project, module, model, use.module, target):
            continue
        setting = setting_of(project, use.module, use.node)
        in_function = use.module is module and module.function(use.node) is module.function(node)
        if in_function and use.node.lineno <= getattr(node, "lineno", 0):
            here.append((use.node.lineno, setting))
        else:
            elsewhere.append(setting)
    if here:
        return max(here, key=lambda found: found[0])[1]
    return _agreed(elsewhere, "`set_state_dict_type` is called with different types")


def _from_callers(project: Project, module: Module, node: ast.AST, depth: int) -> Setting | Unknown | None:
    """What the contexts around the calls of this function choose; no call in a context: None."""
    function = module.function(node)
    if function is None or depth == 0:
        return None
    found: list[Setting | Unknown | None] = []
    for caller, call in project.links.calls_of(module, function):
        block = enclosing(project, caller, call, None)
        if block is not None:
            found.append(setting_of(project, caller, block.call))
        else:
            found.append(_from_callers(project, caller, call, depth - 1))
    if not any(found):
        return None
    told = [setting or Setting() for setting in found]
    return _agreed(told, "it is called inside and outside of `state_dict_type` contexts that differ")


def _agreed(found: list[Setting | Unknown], why: str) -> Setting | Unknown | None:
    if not found:
        return None
    settings = {setting.bare if isinstance(setting, Setting) else setting for setting in found}
    return settings.pop() if len(settings) == 1 else Unknown(why)
