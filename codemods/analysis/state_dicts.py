"""What one call of `state_dict_type` or `set_state_dict_type` chooses, and the blocks of such contexts.

Source: `torch/distributed/fsdp/fully_sharded_data_parallel.py` (`state_dict_type`, `set_state_dict_type`,
`get_state_dict_type`), `torch/distributed/fsdp/api.py` (the config classes and their defaults), torch 2.6
to 2.13."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from codemods.analysis.flow import reaching
from codemods.analysis.holding import Maybe, No, Sharded, WrapCall
from codemods.analysis.module import Module
from codemods.analysis.scopes import BindingKind
from codemods.analysis.values import CallValue, Literal, Named, options

if TYPE_CHECKING:
    from codemods.project import Project

FSDP_CLASS = "torch.distributed.fsdp.FullyShardedDataParallel"


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
        within_group: rank 0 is that of the model's own process group, which need not be rank 0 of all.
    """

    offload_to_cpu: bool
    rank0_only: bool = False
    within_group: bool = False


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

    @property
    def of_group(self) -> Setting:
        """The same for a model whose process group is a part of the ranks; the optimizer's went by all."""
        return replace(self, model=replace(self.model, within_group=True))


@dataclass(frozen=True, slots=True)
class Unknown:
    """The kind cannot be told, and why."""

    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """`with FSDP.state_dict_type(model, ...):`.

    Attributes:
        kept: `context = FSDP.state_dict_type(model, ...)` where the call does not stand in the `with` itself
            and nothing else is done with the name.
    """

    module: Module
    node: ast.With
    item: ast.withitem
    call: ast.Call
    model: ast.expr
    kept: ast.Assign | None = None


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
    if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("StateDictType"):
        # Torch's enumeration, or that of a helper module which an earlier run wrote.
        return next((kind for kind in Kind if kind.value == node.attr), None)
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
                is_full = ".Full" in value.function.name
                if offload is None and rank0 and is_full:
                    # Decided at run time (`offload_to_cpu=torch.cuda.is_available()`), for tensors that one
                    # rank saves: on the CPU they are right in both cases; other ranks get nothing in both.
                    offload = True
                if offload is None or rank0 is None:
                    return None
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


def blocks(project: Project) -> list[Block]:
    """Every `with FSDP.state_dict_type(...)` of the project."""
    found = project.memo.get("state_dict_blocks")
    if not isinstance(found, list):
        found = project.memo["state_dict_blocks"] = list(_blocks(project))
    return found


def _blocks(project: Project) -> Iterator[Block]:
    for use in project.static_calls("state_dict_type"):
        model = argument(use.node, 0, "module")
        kept = _kept(use.module, use.node)
        item = use.module.parent(use.node) if kept is None else _only_entry(use.module, kept)
        block = use.module.parent(item) if isinstance(item, ast.withitem) else None
        if isinstance(item, ast.withitem) and isinstance(block, ast.With) and model is not None:
            yield Block(use.module, block, item, use.node, model, kept)


def _kept(module: Module, call: ast.Call) -> ast.Assign | None:
    """The assignment of a context to a plain name."""
    parent = module.parent(call)
    if (
        isinstance(parent, ast.Assign)
        and len(parent.targets) == 1
        and isinstance(parent.targets[0], ast.Name)
    ):
        return parent
    return None


def _only_entry(module: Module, kept: ast.Assign) -> ast.withitem | None:
    """The `with` of the same block of statements that enters a context, if the name has no other use."""
    target = kept.targets[0]
    assert isinstance(target, ast.Name)
    scope = module.scope_of(target)
    if scope.node is module.tree:
        return None  # other modules can import it
    uses = [n for n in module.named(target.id) if isinstance(n, ast.Name)]
    others = [n for n in uses if n is not target and module.scope_of(n) is scope]
    item = module.parent(others[0]) if len(others) == 1 else None
    inner = [n for n in uses if module.scope_of(n) is not scope and scope.node in module.ancestors(n)]
    if inner or not isinstance(item, ast.withitem) or item.optional_vars is not None:
        return None
    same_place = module.parent(module.parent(item) or item) is module.parent(kept)
    return item if same_place and item.context_expr is others[0] else None


_OF_MODULES = ("modules", "named_modules", "children", "named_children", "fsdp_modules")


def enclosing(project: Project, module: Module, node: ast.AST, model: ast.expr | None) -> Block | None:
    """The innermost block around a place, for that model, or what may be a unit in it (for any, if None)."""
    found: dict[ast.AST, Block] = {b.node: b for b in blocks(project) if b.module is module}
    for parent in module.ancestors(node) if found else ():
        if parent in found and not runs_within(module, node, found[parent].node):
            return None
        block = found.get(parent)
        if block is not None and (
            model is None
            or same_model(project, module, model, block.module, block.model)
            or is_one_of_modules(module, model)
        ):
            return block
    return None


def chosen_for_a_part(project: Project, module: Module, node: ast.AST, model: ast.expr) -> str | None:
    """Why the kind of a state dict cannot be told, of a module that only has sharded parts, in a block."""
    if not isinstance(project.sharded(module, model), No):
        return None
    if enclosing(project, module, node, model) is not None or enclosing(project, module, node, None) is None:
        return None
    return "the context around it chooses for a part of this module"


def runs_within(module: Module, node: ast.AST, block: ast.With) -> bool:
    """Whether a place in a block runs only there: functions around it that are written in the block are used
    in the block and nowhere else."""
    for parent in module.ancestors(node):
        if parent is block:
            return True
        if isinstance(parent, ast.Lambda) and not isinstance(module.parent(parent), ast.Call):
            return False
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            uses = [n for n in module.nodes(ast.Name) if isinstance(n, ast.Name) and n.id == parent.name]
            if not uses or not all(block in module.ancestors(use) for use in uses):
                return False
    return False


def is_one_of_modules(module: Module, node: ast.expr) -> bool:
    """Whether a name is bound by a loop over the modules of something: `for m in model.modules():`."""
    found = module.scope_of(node).lookup(node.id) if isinstance(node, ast.Name) else None
    return any(
        binding.kind is BindingKind.LOOP
        and isinstance(binding.value, ast.Call)
        and isinstance(binding.value.func, ast.Attribute)
        and binding.value.func.attr in _OF_MODULES
        for binding in (reaching(module, *found, node) if found is not None else ())
    )


def sites_of(project: Project, module: Module, model: ast.expr | None) -> frozenset[WrapCall]:
    """The wraps that what an expression holds can come from."""
    holding = project.sharded(module, model) if model is not None else None
    return holding.sites if isinstance(holding, Sharded | Maybe) else frozenset()


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
