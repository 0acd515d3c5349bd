"""The wrap call. Source: `FullyShardedDataParallel.__init__`, `torch.distributed.fsdp.fully_shard`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.values import DictValue, Origin, options
from codemods.editing.code import delete_argument, delete_dict_item
from codemods.editing.inline import Refused, inline_edits
from codemods.rule import (
    Code,
    Edit,
    Finding,
    Module,
    Project,
    Safety,
    Span,
    WrapCall,
    code,
    delete,
    finding,
    rule,
)
from codemods.shard_call import SIGNATURE, Argument, Inline, Translation, keyword_rules

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@rule(
    "FullyShardedDataParallel",
    {
        "FM101": "a wrap call whose every value is visible becomes `fully_shard` calls",
        "FM102": "a wrap call decided at run time becomes a call of the helper module",
        "FM103": "a wrap call that is left to a person",
        "FM104": "an unknown keyword of the wrap call",
    },
    order=10,
)
def wrap_call(project: Project) -> Iterator[Finding]:
    """`model = FSDP(model, ...)` becomes `fully_shard` on each unit, children before parents, and on the model.

    Where every value can be read at the call, the loop is written there. Where strategy, policy or precision are decided
    at run time, the call becomes `shard_model(model, ...)` of a small helper module written into the repository,
    with the same keywords, so that configuration values and command lines stay. `fully_shard` changes the model in place
    and gives it back: `y = FSDP(x)` becomes one object under two names.

    Left to a person: a wrap inside a comprehension, positional arguments unpacked with `*`, and keywords that
    FSDP1 does not have.
    """
    for site in project.wraps:
        yield from _translate(project, site)


def _translate(project: Project, site: WrapCall) -> Iterator[Finding]:
    refusal = _refusal(site)
    if refusal is not None:
        yield finding(site.module, site.node, "FM103", refusal[0], remedy=refusal[1])
        return
    arguments, unknown = _arguments(project, site)
    rules = keyword_rules()
    stray = [a for a in arguments if a.name not in rules]
    if stray:
        names = ", ".join(f"`{a.name}`" for a in stray)
        yield finding(
            site.module,
            site.node,
            "FM104",
            f"FSDP1 has no keyword {names}",
            remedy="remove it, or rewrite this call by hand",
        )
        return
    results = [(a, rules[a.name](a)) for a in arguments]
    for _, result in results:
        yield from result.findings
    refused = [(a, r) for a, r in results if r.refused]
    if refused:
        _, result = refused[0]
        yield finding(site.module, site.node, "FM103", result.refused, remedy=result.remedy)
        return
    inline = _as_inline(project, site, results) if not unknown else None
    yield inline or _as_helper_call(site, results, unknown)


def _refusal(site: WrapCall) -> tuple[str, str] | None:
    for parent in site.module.ancestors(site.node):
        if isinstance(parent, _COMPREHENSIONS):
            return (
                "a wrap inside a comprehension says neither which model the parts belong to nor when it is whole",
                "build the modules first, then shard each and the model around them with fully_shard",
            )
        if isinstance(parent, ast.stmt):
            break
    if site.wrapped is None or any(isinstance(a, ast.Starred) for a in site.node.args):
        return (
            "the arguments of this wrap call are unpacked from a sequence",
            "name the module and the keywords at the call, then rewrite again",
        )
    return None


def _arguments(project: Project, site: WrapCall) -> tuple[list[Argument], bool]:
    """Every keyword of a call, `**` dicts opened; and whether some of them are not known."""
    found: list[Argument] = []
    unknown = False

    def add(name: str, module: Module, node: ast.expr, item: ast.AST, *, at_call: bool) -> None:
        value = project.evaluate(module, node)
        found.append(Argument(project, site, name, module, node, value, at_call, item))

    for position, given in enumerate(site.node.args[1:], start=1 if _has_positional_module(site) else 0):
        name = SIGNATURE[position] if position < len(SIGNATURE) else f"argument {position}"
        add(name, site.module, given, given, at_call=True)
    for keyword in site.node.keywords:
        if keyword.arg is not None:
            if keyword.arg != "module":
                add(keyword.arg, site.module, keyword.value, keyword, at_call=True)
            continue
        for value in options(project.evaluate(site.module, keyword.value)):
            if not isinstance(value, DictValue):
                unknown = True
                continue
            unknown = unknown or not value.complete
            for name, origins in value.items.items():
                for origin, (_, item) in zip(origins, value.places[name], strict=True):
                    add(name, origin.module, origin.node, item, at_call=False)
    return found, unknown


def _has_positional_module(site: WrapCall) -> bool:
    return bool(site.node.args)


def _as_inline(
    project: Project, site: WrapCall, results: list[tuple[Argument, Translation]]
) -> Finding | None:
    """The call written out, or None where something is decided at run time."""
    parts: list[Inline] = []
    names = [a.name for a, _ in results]
    if len(set(names)) != len(names):
        return None
    for argument, result in results:
        if result.inline is None:
            return None
        if not argument.at_call and (result.inline.every or result.inline.units or result.inline.precision):
            return None
        parts.append(result.inline)
    if any(keyword.arg is None for keyword in site.node.keywords):
        return None
    done = inline_edits(project, site, parts)
    if isinstance(done, Refused):
        return None
    return finding(
        site.module,
        site.node,
        "FM101",
        "the FSDP1 wrap becomes `fully_shard` on each unit and the model",
        safety=Safety.SAFE,
        edits=done.edits,
        detail=done.units,
    )


def _as_helper_call(site: WrapCall, results: list[tuple[Argument, Translation]], unknown: bool) -> Finding:
    module, call = site.module, site.node
    edits: list[Edit] = [Edit(module.path, module.span(call.func), code(None, "{helper.shard_model}"))]
    edits += _named_module(site)
    needs = {"**"} if unknown else set()
    words = "decided at run time"
    for argument, result in results:
        if not result.keep:
            edits += _dropped(argument)
            continue
        needs.add(argument.name)
        if isinstance(argument.item, ast.expr) and argument.at_call:
            start = module.span(argument.item).start
            edits.append(Edit(module.path, Span(start, start), (f"{argument.name}=",)))
        if argument.name == "auto_wrap_policy":
            words = f"by the policy `{ast.unparse(argument.node)}`"
    return finding(
        module,
        call,
        "FM102",
        "the FSDP1 wrap becomes a call of the helper module, because its values are decided at run time",
        safety=Safety.SAFE,
        edits=list(dict.fromkeys(edits)),
        needs=needs,
        detail=words if "auto_wrap_policy" in needs else "the whole model is one unit",
    )


def _named_module(site: WrapCall) -> list[Edit]:
    for keyword in site.node.keywords:
        if keyword.arg == "module":
            start = site.module.span(keyword).start
            return [Edit(site.module.path, Span(start, start + len("module")), ("model",))]
    return []


def _dropped(argument: Argument) -> list[Edit]:
    """Remove a keyword where it is written: at the call, in a dict, or as an assignment to its key."""
    site, item, module = argument.site, argument.item, argument.module
    if argument.at_call:
        assert isinstance(item, ast.keyword | ast.expr)
        return [delete_argument(site.module, site.node, item)]
    if isinstance(item, ast.keyword):
        holder = module.parent(item)
        return [delete_argument(module, holder, item)] if isinstance(holder, ast.Call) else []
    if isinstance(item, ast.Constant):
        display = module.parent(item)
        if isinstance(display, ast.Dict):
            position = next(i for i, key in enumerate(display.keys) if key is item)
            return [delete_dict_item(module, display, position)]
    if isinstance(item, ast.Subscript):
        return [delete(module, module.statement(item))]
    return []


__all__ = ["Code", "Origin", "wrap_call"]
