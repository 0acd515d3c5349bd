"""Settings that FSDP1's `CustomPolicy` gives single units, as far as the text shows them. Pure.

Source: `torch.distributed.fsdp.wrap.CustomPolicy` (a dict overrides the root's keywords for one unit).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.module import Module
from codemods.analysis.values import CallValue, DictValue, Literal, Named, Value, options
from codemods.custom_policies import functions_of, is_boolean, remembers
from codemods.editing.code import code, finding, replace
from codemods.model import Finding, Safety
from codemods.offload_backends import offload_backends
from codemods.project import Project
from codemods.shard_call import Argument, sibling
from codemods.shared_types import WRAP_TYPES, shared_type
from codemods.torch_names import MIXED_PRECISION_FIELDS

_PREFIX = "torch.distributed.fsdp."
_STRATEGIES = frozenset({"FULL_SHARD", "SHARD_GRAD_OP"})
"""Those that differ in when a unit is resharded alone: the others need a mesh of their own."""
_FIELDS = frozenset({"param_dtype", "reduce_dtype", "cast_forward_inputs"})
"""Fields of a unit's own precision that say nothing of its buffers."""
_WITHOUT_EFFECT = frozenset({"use_orig_params", "limit_all_gathers", "backward_prefetch"})


def unit_settings(project: Project, module: Module, function: ast.expr) -> frozenset[str] | None:
    """The keywords that a policy's function gives units; None where it gives what is not known, or has no
    counterpart for single units."""
    found: set[str] = set()
    functions = functions_of(project, module, function)
    for home, node in functions:
        if not isinstance(node, ast.Lambda) and (not isinstance(node, ast.FunctionDef) or remembers(node)):
            return None
        for answer in [node.body] if isinstance(node, ast.Lambda) else home.results(node)[0]:
            for value in _answers(project, home, answer):
                if value is None or not _is_for_units(project, value):
                    return None
                found |= value.items.keys()
    return frozenset(found) if functions and found else None


def _answers(project: Project, module: Module, node: ast.expr) -> Iterator[DictValue | None]:
    """The dicts among what an expression can be; None for what is neither one nor True or False."""
    match node:
        case ast.IfExp():
            yield from _answers(project, module, node.body)
            yield from _answers(project, module, node.orelse)
        case ast.BoolOp(op=ast.And(), values=[*tests, last]) if all(map(is_boolean, tests)):
            yield from _answers(project, module, last)
        case _ if not is_boolean(node):
            for value in options(project.evaluate(module, node)):
                is_plain = isinstance(value, Literal) and isinstance(value.value, bool)
                if isinstance(value, DictValue) and value.complete:
                    yield value
                elif not is_plain:
                    yield None


def _is_for_units(project: Project, given: DictValue) -> bool:
    """Whether every keyword of a dict can be heeded for one unit alone."""
    for name, origins in given.items.items():
        for origin in origins:
            for value in options(project.evaluate(origin.module, origin.node)):
                if not _is_heeded(name, value):
                    return False
    return True


def _is_heeded(name: str, value: Value) -> bool:
    if name in _WITHOUT_EFFECT:
        return True
    match name, value:
        case "sharding_strategy", Named(symbol=symbol):
            head, _, member = symbol.name.rpartition(".")
            return head == f"{_PREFIX}ShardingStrategy" and member in _STRATEGIES
        case "cpu_offload", CallValue(function=made):
            return made.name == f"{_PREFIX}CPUOffload"
        case "mixed_precision", CallValue(function=made):
            names = {*MIXED_PRECISION_FIELDS[: len(value.arguments)], *value.keywords}
            return made.name == f"{_PREFIX}MixedPrecision" and names <= _FIELDS and not value.spreads
        case "mixed_precision" | "cpu_offload", Literal(value=None):
            return True
    return False


def own_settings(
    argument: Argument, module: Module, call: ast.expr, function: ast.expr
) -> tuple[Finding, ...]:
    """`CustomPolicy(f)` as the helper module's; nothing where f's settings, or the model's, are not known.

    Args:
        argument: the keyword of the wrap call that gets the policy.
        call: where the policy is made.
    """
    project, site = argument.project, argument.site
    given = unit_settings(project, module, function)
    is_open = site.kind != "call" or any(keyword.arg is None for keyword in site.node.keywords)
    if given is None or is_open or not isinstance(call, ast.Call):
        return ()
    names = given - _WITHOUT_EFFECT
    if "mixed_precision" in names and "batch_norm" in project.mentions:
        return ()
    for name in names:
        node = sibling(argument, name)
        for value in options(project.evaluate(site.module, node)) if node is not None else ():
            is_default = isinstance(value, Literal) and value.value is None
            if not is_default and not _is_heeded(name, value):
                return ()
    backends = offload_backends(project, site.module) if "cpu_offload" in names else ()
    moved = finding(
        module,
        call,
        "FM111",
        "`CustomPolicy` comes from the helper module, which gives each unit the settings of its own",
        safety=Safety.SAFE,
        edits=[replace(module, call.func, code(module, "{helper.CustomPolicy}"))],
        needs={*names, *(f"own:{name}" for name in names)},
        shares={shared_type(project, module, WRAP_TYPES[name]) for name in names if name in WRAP_TYPES},
    )
    return (moved, *backends)
