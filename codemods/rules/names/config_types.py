"""FSDP1's configuration types and policies away from an inline wrap call: the helper module has them under
the same names.

Source: `torch.distributed.fsdp.api`, `torch.distributed.fsdp.wrap`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from codemods.analysis.library_calls import Held, held_by_libraries
from codemods.analysis.scopes import BindingKind
from codemods.gated_types import GatedType, gated_types
from codemods.leftover_imports import is_for_fsdp2
from codemods.rule import (
    Edit,
    Finding,
    Module,
    NameUse,
    Project,
    Ref,
    Safety,
    delete_argument,
    finding,
    rule,
)
from codemods.shared_types import WRAP_TYPES, shared_call, shared_type
from codemods.subclass_calls import subclass_calls
from codemods.torch_names import MIXED_PRECISION_FIELDS, canonical
from codemods.wrap_site import refusal, stray_keywords

_PREFIX = "torch.distributed.fsdp."
TYPES = ("ShardingStrategy", "MixedPrecision", "CPUOffload", "BackwardPrefetch")
_LIBRARIES = frozenset(
    {"accelerate", "transformers", "trl", "lightning", "pytorch_lightning", "composer", "axolotl"}
)
_GRADIENTS = "keep_low_precision_grads"
POLICIES = {
    "transformer_auto_wrap_policy": "transformer_auto_wrap_policy",
    "size_based_auto_wrap_policy": "size_based_auto_wrap_policy",
    "lambda_auto_wrap_policy": "lambda_auto_wrap_policy",
    "always_wrap_policy": "always_wrap_policy",
    "ModuleWrapPolicy": "ModuleWrapPolicy",
    "_or_policy": "or_policy",
    "_module_wrap_policy": "module_wrap_policy",
}


@rule(
    "configuration types and policies",
    {
        "FM201": "a configuration type or policy moves to the helper module",
        "FM202": "a configuration type or policy is handed to a training library",
        "FM203": "`keep_low_precision_grads` has no counterpart",
    },
    order=80,
)
def config_types(project: Project) -> Iterator[Finding]:
    """`ShardingStrategy`, `MixedPrecision`, `CPUOffload`, `BackwardPrefetch` and the policies keep their
    names and members.

    The wrap call may be far from where its values are made: in a dataclass, a command line, a module of
    policies. There nothing changes but the import: the helper module has small types and functions of the
    same names, so that `cfg.sharding_strategy = "HYBRID_SHARD"` and `ShardingStrategy[name]` stay as they
    are. Where a wrap call that takes such values is left to you, or a subclass of FSDP1's wrapper does, the
    type stays torch's, and so do all calls that take its values.
    """
    refused = [s for s in project.wraps if refusal(project, s) is not None or stray_keywords(project, s)]
    moving = {project.group(s.module.path) for s in project.wraps if s not in refused}
    left = [(s.module, call) for s in refused for call in (s.node, s.settings)]
    left += [given for calls in subclass_calls(project).values() for given in calls]
    names = {f"{_PREFIX}{name}": name for name in TYPES}
    names |= {f"{_PREFIX}wrap.{name}": new for name, new in POLICIES.items()}
    held = held_by_libraries(project)
    gates = [gated for gated in _gates(project, held) if project.group(gated.module.path) in moving]
    for gated in gates:
        yield _behind_gate(project, gated)
    for name, new in names.items():
        for use in project.uses(name):
            span = use.module.span(use.node)
            place = next((h for h in held.get(use.module.path, ()) if h.span.holds(span)), None)
            if place is not None:
                if not place.inside:  # what stands in the call, the rules of `ecosystem` translate or report
                    yield _given(use, place.library)
                continue
            taker = _taker(project, use.module, use.node)
            if taker:
                yield _given(use, taker)
            elif any(home is use.module and home.span(call).holds(span) for home, call in left):
                continue  # the call stays as it is, and so does what is written in it
            elif any(gated.binds(use.node) for gated in gates if gated.module is use.module):
                continue  # what is imported changes
            elif project.group(use.module.path) in moving and _can_be_fsdp2s(use):
                yield _of_two_stacks(project, use, new)
            elif project.group(use.module.path) in moving:
                yield _moved(project, use, new)
                if new == "MixedPrecision":
                    yield from _low_precision_gradients(project, use)


def _can_be_fsdp2s(use: NameUse) -> bool:
    """Whether a name is imported as FSDP2's type of the same use as well: the imports are a gate."""
    found = use.module.scope_of(use.node).lookup(use.node.id) if isinstance(use.node, ast.Name) else None
    bound = [b for b in found[1] if b.kind is BindingKind.IMPORT] if found is not None else []
    return any(is_for_fsdp2(canonical(binding.target)) for binding in bound)


def _of_two_stacks(project: Project, use: NameUse, name: str) -> Finding:
    return finding(
        use.module,
        use.node,
        "FM201",
        f"this is FSDP1's `{name}` or FSDP2's type, as the program decides, and stays",
        remedy="import FSDP1's under a name of its own, or FSDP2's alone, and rewrite again",
        shares=_shares(project, use, name),
    )


def _gates(project: Project, held: Mapping[str, Sequence[Held]]) -> Iterator[GatedType]:
    """FSDP1's side of every gate whose type is given to nothing but this project's own code."""
    for module in project.reading("MixedPrecisionPolicy", "CPUOffloadPolicy", "OffloadPolicy"):
        for name in TYPES:
            for gated in gated_types(module, f"{_PREFIX}{name}"):
                uses = gated.uses()
                spans = [module.span(use) for use in uses]
                is_held = any(h.span.holds(span) for h in held.get(module.path, ()) for span in spans)
                if not is_held and not any(_taker(project, module, use) for use in uses):
                    yield gated


def _behind_gate(project: Project, gated: GatedType) -> Finding:
    """FSDP1's side of a gate is the helper module's type, as what it is compared with and given to."""
    name = gated.name.removeprefix(_PREFIX)
    fields = MIXED_PRECISION_FIELDS if name == "MixedPrecision" else ()
    types = WRAP_TYPES.values()
    return finding(
        gated.module,
        gated.node,
        "FM201",
        f"`{name}` comes from the helper module",
        safety=Safety.SAFE,
        edits=gated.edits(),
        needs={f"field:{field}" for field in fields if field != _GRADIENTS},
        remedy=f"change `{name}` together with the wrap calls that take it",
        shares={shared_type(project, gated.module, name)} if name in types else set(),
    )


def _given(use: NameUse, taker: str) -> Finding:
    return finding(
        use.module,
        use.node,
        "FM202",
        f"`{taker}` is given one of FSDP1's types",
        remedy=f"give {taker} its FSDP2 settings",
        fades=True,
    )


def _taker(project: Project, module: Module, node: ast.expr) -> str:
    """The class or function of a training library that a value is handed to directly, which wants torch's own
    type."""
    for parent in module.ancestors(node):
        if isinstance(parent, ast.stmt):
            return ""
        if isinstance(parent, ast.Call):
            symbol = project.resolve(module, parent.func)
            if symbol is not None and symbol.name.split(".")[0] in _LIBRARIES:
                return symbol.name
    return ""


def _moved(project: Project, use: NameUse, new: str) -> Finding:
    module, node = use.module, use.node
    needs: set[str] = set()
    parent = module.parent(node)
    if new == "MixedPrecision" and isinstance(parent, ast.Call) and parent.func is node:
        needs = _fields(project, parent)
    if new == "MixedPrecision" and _is_assigned_to(project):
        needs.add("field:_mutable")
    return finding(
        module,
        node,
        "FM201",
        f"`{use.symbol.name.rpartition('.')[2]}` comes from the helper module",
        safety=Safety.SAFE,
        edits=[Edit(module.path, module.span(node), (Ref(f"helper.{new}"),))],
        needs=needs,
        fades=True,
        remedy=f"change `{new}` together with the wrap calls that take it",
        shares=_shares(project, use, new),
    )


def _shares(project: Project, use: NameUse, name: str) -> set[str]:
    """What a use of a type is changed together with: the wrap call it stands in, or its files' uses."""
    if name not in WRAP_TYPES.values():
        return set()
    calls = {site.settings for site in project.wraps if site.module is use.module}
    for parent in use.module.ancestors(use.node):
        if isinstance(parent, ast.Call) and parent in calls:
            return {shared_call(use.module, parent)}
        if isinstance(parent, ast.stmt):
            break
    return {shared_type(project, use.module, name)}


def _fields(project: Project, call: ast.Call) -> set[str]:
    """Fields a `MixedPrecision(...)` call sets, marked as such."""
    names = {name for name, _ in zip(MIXED_PRECISION_FIELDS, call.args, strict=False)}
    for keyword in call.keywords:
        names |= {keyword.arg} if keyword.arg else set(MIXED_PRECISION_FIELDS)
    if not any(_is_decided_at_run_time(project, keyword) for keyword in call.keywords):
        names.discard(_GRADIENTS)
    return {f"field:{name}" for name in names}


def _is_decided_at_run_time(project: Project, keyword: ast.keyword) -> bool:
    """Whether the program decides about low-precision gradients when it runs, or can by `**settings`."""
    if keyword.arg is None:
        return any(True for _ in project.reading(_GRADIENTS))
    return keyword.arg == _GRADIENTS and not isinstance(keyword.value, ast.Constant)


def _is_assigned_to(project: Project) -> bool:
    """Whether the project changes a precision after it is made: `policy.param_dtype = torch.float16`."""
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        for module in project.reading(*MIXED_PRECISION_FIELDS)
        for node in module.named(*MIXED_PRECISION_FIELDS)
    )


def _low_precision_gradients(project: Project, use: NameUse) -> Iterator[Finding]:
    """`keep_low_precision_grads` goes: False is what FSDP2 does, True has no counterpart. What the program
    decides stays, and the helper module's type refuses True."""
    call = use.module.parent(use.node)
    if not isinstance(call, ast.Call) or call.func is not use.node:
        return
    for keyword in call.keywords:
        if _is_decided_at_run_time(project, keyword):
            can_be = "" if keyword.arg is not None else f"of `**{ast.unparse(keyword.value)}` "
            message = (
                f"{can_be}`keep_low_precision_grads` can only be False: FSDP2 keeps the dtype of parameters"
            )
            yield finding(use.module, keyword, "FM203", message, is_note=True, fades=True)
        elif keyword.arg == _GRADIENTS:
            is_off = isinstance(keyword.value, ast.Constant) and not keyword.value.value
            yield finding(
                use.module,
                keyword,
                "FM203",
                "`keep_low_precision_grads` kept gradients in the compute dtype; FSDP2 in the parameter's",
                remedy="remove it: the optimizer gets more exact gradients, which take more memory",
                safety=Safety.SAFE if is_off else Safety.UNSAFE,
                edits=[delete_argument(use.module, call, keyword)],
                fades=True,
            )
