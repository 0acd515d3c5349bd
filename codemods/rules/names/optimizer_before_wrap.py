"""An optimizer that is built before the model is sharded.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_param.py` (`fully_shard` replaces every parameter by a
new one)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeAlias

from codemods.analysis.conditions import are_apart
from codemods.analysis.evidence import OPTIMIZER_STEMS, names_optimizer
from codemods.analysis.origins import Origins
from codemods.built_optimizers import is_item, models_of, optimizer_calls
from codemods.editing.moves import exchanged, moved_behind
from codemods.rule import Edit, Finding, Module, No, Project, Safety, WrapCall, finding, rule

_MANY = 8
"""Optimizers of other functions before one wrap, from which on they are told at the wrap, in one."""
_REMEDY_FOR_MANY = (
    "let this function take the optimizer too, and give its `param_groups` the sharded parameters after the "
    "wrap, or build the optimizers after it"
)
_Met: TypeAlias = "dict[WrapCall, list[tuple[Module, ast.Call, bool]]]"
"""Wrap call -> the optimizers of other functions before it, and whether each gets the sharded parameters."""
_MADE = [
    re.compile(rb"%s\w*(?=[ \t]*(?:\(|=[^\n]*\bparameters[ \t]*\())" % stem.encode())
    for stem in OPTIMIZER_STEMS
]
"""What follows in names of optimizers; each begins with a text, which is found far faster."""
_BEGINNING, _LONGEST = re.compile(rb"\w*$"), 40
_REMEDY = "build the optimizer after the model is sharded, from the sharded model's parameters"

_LISTED = (
    "`fully_shard` replaces parameters: this optimizer gets some from a list that was made before, and would "
    "update tensors that the model no longer uses"
)
_REMEDY_FOR_LISTS = "list the parameters after the model is sharded"


def _may_build(code: bytes) -> bool:
    """Whether something is called that has the name of an optimizer, or is given one, in capital letters or
    not."""
    lower = code.lower()  # eight times as fast as patterns that ignore case
    return any(
        names_optimizer(_word_around(lower, match)) for pattern in _MADE for match in pattern.finditer(lower)
    )


def _word_around(code: bytes, match: re.Match[bytes]) -> str:
    """The name that a match is the end of."""
    before = _BEGINNING.search(code, max(0, match.start() - _LONGEST), match.start())
    return ((before[0] if before else b"") + match[0]).decode("latin-1")


@rule(
    "optimizer",
    {"FM504": "an optimizer built before the model is sharded"},
    order=20,
    where={b"param": _may_build},
    needs_wraps=True,
)
def optimizer(project: Project) -> Iterator[Finding]:
    """An optimizer built from `model.parameters()` before the wrap is moved behind it.

    With `use_orig_params=True` FSDP1 kept the parameter objects, so an optimizer built earlier trained
    them. `fully_shard` replaces every parameter: the old optimizer then updates tensors nobody uses, the
    loss stays as it is, and nothing is said.

        optimizer = AdamW(model.parameters())        model = shard(model)
        model = shard(model)                         optimizer = AdamW(model.parameters())

    Lists of parameters made for it and statements that need it (a scheduler) move along. In a dict or the
    keywords of a call that build the one and then the other, the two items change places. Where the two are
    in different functions, or something in between uses the optimizer in another way, the place is left to a
    person; of many that meet one wrap, as in a library, the wrap. Where the optimizer is given the sharded
    parameters again (`optimizer.__init__(...)`, new `param_groups`), that is said and nothing is to do."""
    if not project.wraps:
        return
    built: list[tuple[Module, ast.Call, ast.expr]] = []
    seen: set[ast.AST | None] = set()
    met: _Met = {}
    origins = Origins(project.links)
    for module, call in optimizer_calls(project):
        if call in seen:
            continue
        for owner in models_of(project, module, call):
            beside = _wrap_beside(project, module, call, owner)
            if beside is not None:
                yield _finding(module, call, beside, is_repaired=False)
                seen.add(call)
                break
            wrap = _later_wrap(project, origins, module, call, owner)
            if wrap is None:
                built.append((module, call, owner))
                continue
            if module.span(call).start > module.span(wrap).start:
                yield finding(module, call, "FM504", _LISTED, remedy=_REMEDY_FOR_LISTS)
                seen.add(call)
                break
            moved = moved_behind(module, module.statement(call), wrap, ast.unparse(owner))
            is_repaired = not moved and _is_repaired(project, module, wrap)
            site = _wrap_of(project, module, wrap)
            if moved or site is None:
                yield _finding(module, call, moved, is_repaired=is_repaired)
            else:
                met.setdefault(site, []).append((module, call, is_repaired))
            symbol = project.resolve(module, call.func)
            seen |= {call, symbol.node if symbol is not None else None}
            break
    _wrapped_elsewhere(project, origins, built, seen, met)
    for site, optimizers in met.items():
        stale = [one for one in optimizers if not one[2]]
        if len(stale) > _MANY:
            yield _of_many(site, stale)
        for module, call, is_repaired in optimizers:
            if len(stale) > _MANY and not is_repaired:
                continue
            yield _finding(module, call, [], is_repaired=is_repaired)


def _wrap_beside(project: Project, module: Module, call: ast.Call, owner: ast.expr) -> list[Edit] | None:
    """The edits that build an optimizer behind the wrap of its model in the same statement; None where there
    is no such wrap behind it."""
    statement, text = module.statement(call), ast.unparse(owner)
    for site in project.wraps:
        if site.module is not module or site.wrapped is None or ast.unparse(site.wrapped) != text:
            continue
        is_behind = module.span(call).end <= module.span(site.node).start
        if is_behind and module.statement(site.node) is statement:
            return exchanged(module, call, site.node, owner)
    return None


def _wrapped_elsewhere(
    project: Project,
    origins: Origins,
    built: list[tuple[Module, ast.Call, ast.expr]],
    seen: set[ast.AST | None],
    met: _Met,
) -> None:
    """Optimizers of a model that another function shards later."""
    wrapped = [
        (site, origins.of(site.module, site.wrapped)) for site in project.wraps if site.wrapped is not None
    ]
    for module, call, owner in built if wrapped else ():
        is_asked = isinstance(call.func, ast.Attribute) and owner is call.func.value
        if not is_asked and not project.links.builds_optimizer(module, call):
            continue
        if call in seen or module.function(call) in seen:
            continue
        holding, made = project.sharded(module, owner), origins.of(module, owner)
        for site, there in wrapped:
            if not isinstance(holding, No) and site not in holding.sites:
                continue  # sharded by another one already
            is_same = bool(made & there) or is_item(module, owner, site)
            if is_same and origins.is_earlier((module, call), (site.module, site.node)):
                is_repaired = _is_repaired(project, site.module, site.module.statement(site.node))
                met.setdefault(site, []).append((module, call, is_repaired))
                seen.add(call)
                break


def _wrap_of(project: Project, module: Module, statement: ast.stmt) -> WrapCall | None:
    """The wrap call in another function that a statement's call leads to, if it is one alone."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    held = project.links.held(module, value) if value is not None else ()
    sites = [h for h in held if isinstance(h, WrapCall)]
    is_here = any(site.node in ast.walk(statement) for site in sites)
    return sites[0] if len(sites) == 1 and not is_here else None


def _of_many(site: WrapCall, optimizers: list[tuple[Module, ast.Call, bool]]) -> Finding:
    """One finding for a wrap that a library makes for all its users."""
    places = [f"{module.path}:{module.place(call).line}" for module, call, _ in optimizers]
    return finding(
        site.module,
        site.node,
        "FM504",
        f"`fully_shard` replaces parameters: {len(places)} optimizers built before this wrap would train "
        f"nothing ({', '.join(places[:3])} and others)",
        remedy=_REMEDY_FOR_MANY,
    )


def _finding(module: Module, call: ast.Call, moved: list[Edit], *, is_repaired: bool) -> Finding:
    if is_repaired:
        return finding(
            module,
            call,
            "FM504",
            "this optimizer's parameters are replaced by `fully_shard`; it is given the sharded ones later",
            is_note=True,
        )
    return finding(
        module,
        call,
        "FM504",
        "`fully_shard` replaces parameters: an optimizer built before it would train nothing",
        remedy=_REMEDY,
        safety=Safety.SAFE if moved else Safety.MANUAL,
        edits=moved,
    )


def _is_repaired(project: Project, module: Module, wrap: ast.stmt, depth: int = 2) -> bool:
    """Whether an optimizer gets other parameters after the wrap, in its function or one that calls it."""
    end, function = module.span(wrap).end, module.function(wrap)
    for node in _repairs(module):
        if (function is None or function in module.ancestors(node)) and module.span(node).start >= end:
            return True
    calls = project.links.calls_of(module, function) if function is not None and depth else []
    return any(_is_repaired(project, home, home.statement(call), depth - 1) for home, call in calls)


def _repairs(module: Module) -> Iterator[ast.Call | ast.Assign]:
    """What gives an optimizer other parameters."""
    yield from (call for call in module.called("add_param_group") if isinstance(call.func, ast.Attribute))
    for call in module.called("__init__"):
        if isinstance(call.func, ast.Attribute) and "parameters()" in ast.unparse(call):
            yield call
    for node in module.nodes(ast.Assign) if "param_groups" in module.text else ():
        if isinstance(node, ast.Assign) and any("param_groups" in ast.unparse(t) for t in node.targets):
            yield node


def _later_wrap(
    project: Project, origins: Origins, module: Module, call: ast.Call, owner: ast.expr
) -> ast.stmt | None:
    """The statement after an optimizer's in the same function that rebinds its model to a sharded one, which
    it was not before (`model = torch.compile(model)`)."""
    around = module.function(call) or module.tree
    if around not in module.ancestors(owner):
        return None  # the model of a function that is called, whatever has its name here
    text, scope = ast.unparse(owner), module.scope_of(call)
    end = module.span(module.statement(owner)).end  # of a list that the optimizer is given later, perhaps
    later = [
        (node, wraps)
        for node in module.nodes(ast.Assign)
        if isinstance(node, ast.Assign) and len(node.targets) == 1
        if module.scope_of(node) is scope and module.span(node).start >= end and _takes(node.value, text)
        if not are_apart(module, call, node)
        if project.links.may_be_sharded(node.value)
        if (wraps := {h for h in project.links.held(module, node.value) if isinstance(h, WrapCall)})
    ]
    if not later:
        return None
    here = [n for n in ast.walk(call) if isinstance(n, ast.Name | ast.Attribute) and ast.unparse(n) == text]
    before = {h for place in (owner, *here) for h in project.links.held(module, place)}
    made = origins.of(module, owner)
    return next(
        (
            node
            for node, wraps in later
            if not wraps <= before and any(_is_of(origins, site, made) for site in wraps)
        ),
        None,
    )


def _is_of(origins: Origins, site: WrapCall, made: frozenset[ast.AST]) -> bool:
    """Whether a wrap can be of what was made there, and not of something that is given along with it, such as
    a configuration."""
    there = origins.of(site.module, site.wrapped) if site.wrapped is not None else frozenset()
    return not there or not made or bool(there & made)


def _takes(value: ast.expr, text: str) -> bool:
    """Whether a call is given the model under that name."""
    if not isinstance(value, ast.Call):
        return False
    given = [*value.args, *(k.value for k in value.keywords)]
    kinds = ast.Name | ast.Attribute | ast.Subscript
    return any(isinstance(a, kinds) and ast.unparse(a) == text for a in given) or any(
        _takes(a, text) for a in given
    )
