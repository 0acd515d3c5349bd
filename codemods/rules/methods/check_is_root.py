"""Methods and attributes of the FSDP1 wrapper that have no public counterpart.

Source: `FullyShardedDataParallel`, `torch/distributed/fsdp/_common_utils.py` (`_FSDPState`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.analysis.class_questions import classes_of
from codemods.analysis.conditions import conditions, decided_by
from codemods.own_attributes import own_attributes
from codemods.parts_of_models import model_of
from codemods.rule import (
    FSDP,
    Finding,
    Module,
    Named,
    No,
    Project,
    Safety,
    Sharded,
    code,
    finding,
    is_where_not_instance,
    options,
    replace,
    rule,
)
from codemods.sources import names_fsdp
from codemods.wrap_site import arguments_of

_METHODS = {
    "check_is_root": "compare with the model you sharded: `module is model`",
    "apply": "random numbers filled into DTensors are other numbers: initialise before sharding, or check "
    "that the function sets constants",
}
_STREAMS = frozenset(
    {"_streams", "_unshard_stream", "_pre_unshard_stream", "_post_backward_stream", "_all_gather_stream"}
    | {"_streams_unshard", "_streams_pre_unshard", "_streams_post_backward", "_free_event_queue"}
)
_MESH = "next(model.parameters()).device_mesh"
_ATTRIBUTES = {
    "process_group": f"use `{_MESH}.get_group()`, or keep the mesh; of two dimensions the one that shards",
    "_inter_node_pg": f"use `{_MESH}.get_group(...)` of the dimension that replicates",
    "sharding_strategy": "keep what your configuration says; an FSDP2 model does not remember it",
    "mixed_precision": "keep what your configuration says; an FSDP2 model does not remember it",
    "compute_device": "use the mesh's device type or the device of an input",
    "rank": f"use `{_MESH}.get_local_rank()`, or keep the mesh; of two dimensions the one that shards",
    "world_size": f"use `{_MESH}.size()`, or keep the mesh; of two dimensions the one that shards",
    "params": "there are no flat parameters: `parameters()` of the whole model gives DTensors (a unit's own "
    "are not told from those of units in it), `.to_local()` of one this rank's part",
    "training_state": "FSDP2 has no public training state",
    "_has_params": "every module given to `fully_shard` counts: test `isinstance(module, FSDPModule)`",
    "_is_root": "compare with the model you sharded: `module is model`",
    **dict.fromkeys(
        sorted(_STREAMS),
        "FSDP2 models share streams by `share_comm_ctx([model, other])` (torch 2.10 and later)",
    ),
    "_exec_order_data": "FSDP2 records no order: name the units to prefetch with "
    "`set_modules_to_forward_prefetch`",
    "_comm_hook": "use `set_all_reduce_hook` or `set_custom_reduce_scatter` of `FSDPModule`",
    "_sync_gradients": "use `set_requires_gradient_sync` of `FSDPModule`",
    "_use_full_prec_in_eval": "FSDP2 computes in the policy's dtype in evaluation too",
    "limit_all_gathers": "FSDP2 needs no rate limit: delete it",
    "forward_prefetch": "use `set_modules_to_forward_prefetch` of `FSDPModule`",
    "backward_prefetch": "use `set_modules_to_backward_prefetch` of `FSDPModule`",
    "cpu_offload": "keep what your configuration says; an FSDP2 model does not remember it",
}
_OF_PARTS = frozenset({"process_group", "sharding_strategy", "training_state"}) | {
    name for name in _ATTRIBUTES if name.startswith("_")
}
"""What a part of a sharded model has only as a unit, unless a class of the project gives it one."""
_UNIT_CLASSES = (FSDP, "torch.distributed.fsdp.FSDPModule")
_HOOKS = re.compile(r"\.register_\w*hook\(")
_VALUES = re.compile(r"\binit\b|parameters\(|\.(?:data|weight|bias|fill_|zero_|normal_|uniform_)\b")


@rule(
    "check_is_root",
    {"FM310": "an attribute or method of the FSDP1 wrapper without counterpart"},
    where=dict.fromkeys((name.encode() for name in sorted(_STREAMS)), names_fsdp),
)
def check_is_root(project: Project) -> Iterator[Finding]:
    """Attributes and methods that only the FSDP1 wrapper had, used on a sharded model.

    `check_is_root()`, `process_group`, `sharding_strategy`, `mixed_precision`, `compute_device`, `rank`,
    `world_size` and a few private ones do not exist on an FSDP2 model: reading one fails, `hasattr` is False,
    and what is assigned to one has no effect. `apply(fn)` exists and sees DTensors where FSDP1 gave full
    parameters; nothing is said of one that only registers hooks. Each is left to a person with what to use
    instead, but for the `process_group` of a model that was given none: `dist.group.WORLD`. So they are of
    units: what a loop over `FSDP.fsdp_modules` gives, what `isinstance(x, FSDP)` has been asked of, and, by
    the names that nothing else has, parts of a sharded model."""
    of_parts = _OF_PARTS - own_attributes(project, _OF_PARTS)
    for module in project.looked_at:
        for node in module.named(*_ATTRIBUTES, *_METHODS):
            if not isinstance(node, ast.Attribute):
                continue
            remedy = _ATTRIBUTES.get(node.attr) or _METHODS[node.attr]
            if node.attr == "params" and not _is_flat(project, module, node.value):
                continue
            is_wrapper = _is_wrapper(project, module, node.value, may_be_part=node.attr in of_parts)
            if is_wrapper and node.attr in _ATTRIBUTES and _is_asked_first(module, node):
                continue
            if is_wrapper or _is_stream_of_any(module, node):
                if node.attr == "apply" and _leaves_parameters(project, module, module.parent(node)):
                    continue
                if node.attr == "process_group" and _has_default_group(project, module, node):
                    yield _default_group(module, node)
                    continue
                what = "sees DTensors, not full parameters" if node.attr == "apply" else "does not exist"
                yield _finding(module, node, f"`.{node.attr}` of an FSDP2 model {what}", remedy)
        for call in (c for name in ("getattr", "hasattr", "setattr") for c in module.called(name)):
            match call:
                case ast.Call(
                    func=ast.Name(),
                    args=[model, ast.Constant(value=str(name)), *_],
                ) if name in _ATTRIBUTES:
                    if _is_wrapper(project, module, model, may_be_part=name in of_parts):
                        message = f"`.{name}` of an FSDP2 model does not exist"
                        yield _finding(module, call, message, _ATTRIBUTES[name])


def _is_wrapper(project: Project, module: Module, node: ast.expr, *, may_be_part: bool) -> bool:
    """Whether an object can be FSDP1's wrapper of a model.

    Args:
        may_be_part: or of a part of one, as what is asked of it says.
    """
    if not isinstance(project.sharded(module, node), No) or _is_unit(project, module, node):
        return True
    return may_be_part and not isinstance(model_of(project, module, node)[1], No)


def _has_default_group(project: Project, module: Module, node: ast.Attribute) -> bool:
    """Whether the group of a wrapped model, which is read, can only be that of all ranks."""
    holding = project.sharded(module, node.value)
    if not isinstance(holding, Sharded) or not isinstance(node.ctx, ast.Load):
        return False
    for site in holding.sites:
        arguments, unknown = arguments_of(project, site)
        given = {argument.name: argument for argument in arguments}
        strategy = given.get("sharding_strategy")
        if unknown or {"process_group", "device_mesh"} & given.keys():
            return False
        names = {
            value.symbol.name.rpartition(".")[2] if isinstance(value, Named) else ""
            for value in (options(strategy.value) if strategy is not None else ())
        }
        if not names <= {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"}:
            return False
    return bool(holding.sites)


def _default_group(module: Module, node: ast.Attribute) -> Finding:
    return finding(
        module,
        node,
        "FM310",
        "the wrapped model's group is that of all ranks",
        safety=Safety.SAFE,
        edits=[replace(module, node, code(module, "{torch.distributed}.group.WORLD"))],
    )


def _is_asked_first(module: Module, node: ast.Attribute) -> bool:
    """Whether `hasattr` decides that a place is reached: it is told, and this would be the same again."""
    asked = f"hasattr({ast.unparse(node.value)}, {node.attr!r})"
    tests = (part for test, holds in conditions(module, node) for part in decided_by(test, holds))
    return any(holds and ast.unparse(test) == asked for test, holds in tests)


def _is_stream_of_any(module: Module, node: ast.Attribute) -> bool:
    """Whether FSDP1's streams are meant wherever the object comes from: `self.student.head._streams`, in a
    file about FSDP, of no class that has such an attribute itself."""
    is_stream = node.attr in _STREAMS and module.says_fsdp
    is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
    return is_stream and not is_own


def _is_flat(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether `.params` of an object can only be the flat parameters of FSDP1's wrapper."""
    return _is_unit(project, module, node) or isinstance(project.sharded(module, node), Sharded)


def _finding(module: Module, node: ast.AST, message: str, remedy: str) -> Finding:
    return finding(module, node, "FM310", message, remedy=remedy)


def _leaves_parameters(project: Project, module: Module, call: ast.AST | None) -> bool:
    """Whether `model.apply(...)` is given functions of the project that register hooks and do nothing with
    parameters."""
    if not isinstance(call, ast.Call) or not call.args:
        return False
    given = call.args[0]
    if isinstance(given, ast.Call) and ast.unparse(given.func).rpartition(".")[2] == "partial" and given.args:
        given = given.args[0]
    meant = [ast.unparse(function) for _, function in project.links.functions.meant(module, given)]
    return bool(meant) and all(_HOOKS.search(text) and not _VALUES.search(text) for text in meant)


def _is_unit(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether something has been asked for FSDP1's class in this function, and is not where it is of another,
    or is a loop variable over `FSDP.fsdp_modules(...)`."""
    match node:
        case ast.Call(func=ast.Name(id="next"), args=[ast.GeneratorExp(elt=element), *_]):
            return _is_unit(project, module, element)
        case ast.Call():
            return False
    text, function, line = ast.unparse(node), module.function(node), module.statement(node).lineno
    for question in module.called("isinstance"):
        match question:
            case ast.Call(args=[asked, classes]) if ast.unparse(asked) == text:
                symbols = (project.resolve(module, one) for one in classes_of(classes))
                is_asked = any(symbol is not None and symbol.name in _UNIT_CLASSES for symbol in symbols)
                is_before = (
                    module.function(question) is function and module.statement(question).lineno <= line
                )
                if is_asked and is_before:
                    return not is_where_not_instance(module, node, text)
    for parent in module.ancestors(node):
        for loop in getattr(parent, "generators", [parent]):
            if isinstance(loop, ast.For | ast.comprehension) and isinstance(loop.iter, ast.Call):
                method = loop.iter.func
                is_named = isinstance(loop.target, ast.Name) and loop.target.id == text
                if is_named and isinstance(method, ast.Attribute) and method.attr == "fsdp_modules":
                    return True
    return False
