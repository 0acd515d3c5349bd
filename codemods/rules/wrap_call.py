"""The wrap call. Source: `FullyShardedDataParallel.__init__`, `torch.distributed.fsdp.fully_shard`."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator

from codemods.editing.code import join
from codemods.editing.helper_call import helper_call_edits
from codemods.editing.inline import Refused, inline_edits
from codemods.editing.wrap_target import is_nested
from codemods.enabled_wraps import enabling
from codemods.modernize import Improved, added_edits, improved, passed_through
from codemods.rule import (
    Code,
    Finding,
    Module,
    Project,
    Safety,
    WrapCall,
    finding,
    rule,
)
from codemods.shard_call import Argument, Inline, Translation, keyword_rules
from codemods.wrap_site import (
    arguments_of,
    made_elsewhere,
    made_outside,
    may_be_on_meta,
    refusal,
    taken_by_wrap,
)

_PART_OF_MORE = "the wrap is a part of a larger expression"
_OF_TORCH_1_11 = "fsdp_auto_wrap_policy"
_RENAMED = (
    "since torch 1.12 it is `auto_wrap_policy`, and `default_auto_wrap_policy` is "
    "`size_based_auto_wrap_policy`: rename both, then rewrite again"
)


@rule(
    "FullyShardedDataParallel",
    {
        "FM101": "a wrap call whose every value is visible becomes `fully_shard` calls",
        "FM102": "a wrap call decided at run time becomes a call of the helper module",
        "FM103": "a wrap call that is left to a person",
        "FM104": "an unknown keyword of the wrap call",
        "FM108": "an improvement that was asked for and is not added",
    },
    order=10,
)
def wrap_call(project: Project) -> Iterator[Finding]:
    """`model = FSDP(model, ...)` becomes `fully_shard` on each unit, children before parents, and on the
    model.

    Where every value can be read at the call, the loop is written there. Where strategy, policy or precision
    are decided at run time, the call becomes `shard_model(model, ...)` of a small helper module written into
    the repository, with the same keywords, so that configuration values and command lines stay. `fully_shard`
    changes the model in place and gives it back: `y = FSDP(x)` becomes one object under two names. So it is
    where a class is chosen in the call, `(FSDP if distributed else Plain)(model, ...)`. A model
    that can be on the meta device gets its storage and values as FSDP1 gave them, unit by unit.

    With `--modernize` the sharded model gets what FSDP1 did not have, by small functions of the helper
    module: `ac=full` or `ac=selective` (activations of units that hold no others are computed again),
    `compile` (each unit by itself), `prefetch=N` (the parameters of N units are gathered ahead), `float8`
    (linear layers compute and are gathered in float8, by torchao, before the model is sharded). None changes
    the units or the names of parameters. `mesh=replicate:2,shard:8`, or `mesh=dp:8`, is the named mesh of
    every `fully_shard`. Where the file checkpoints, compiles or chooses its mesh by itself, or the wrap is a
    part of a larger expression, nothing is added, and that is said (FM108).

    Left to a person: a wrap inside a comprehension, positional arguments unpacked with `*`, keywords that
    FSDP1 does not have, and a strategy or precision imported from files that are not read: those would stay
    torch's.
    """
    by_hand: dict[Module, WrapCall] = {}
    for site in project.wraps:
        if site.kind != "wrap":
            yield from _translate(project, site)
        else:
            by_hand.setdefault(site.module, site)
    for site in by_hand.values():
        yield from _not_added(
            site, [(word, "its parts are wrapped by hand") for word in project.options.modernize]
        )


def _not_added(site: WrapCall, left_out: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    for word, reason in left_out:
        message = f"`--modernize {word}` adds nothing here: {reason}"
        yield finding(site.module, site.node, "FM108", message, is_note=True)


def _left(project: Project, site: WrapCall, rule_code: str, message: str, remedy: str) -> Finding:
    """A wrap call that stays, and with it the types whose values it takes."""
    shares = taken_by_wrap(project, site)
    return finding(site.module, site.node, rule_code, message, remedy=remedy, shares=shares)


def _translate(project: Project, site: WrapCall) -> Iterator[Finding]:
    refused_form = refusal(project, site)
    if refused_form is not None:
        yield _left(project, site, "FM103", *refused_form)
        return
    arguments, unknown = arguments_of(project, site)
    rules = keyword_rules()
    stray = [a for a in arguments if a.name not in rules]
    if stray:
        names = ", ".join(f"`{a.name}`" for a in stray)
        remedy = "remove it, or rewrite this call by hand"
        if any(a.name == _OF_TORCH_1_11 for a in stray):
            remedy = _RENAMED
        yield _left(project, site, "FM104", f"FSDP1 has no keyword {names}", remedy)
        return
    outside = next((name for a in arguments if (name := made_outside(project, a)) is not None), None)
    if outside is not None:
        yield _left(project, site, "FM103", *made_elsewhere(outside))
        return
    results = [(a, rules[a.name](a)) for a in arguments]
    for _, result in results:
        yield from result.findings
    refused = [(a, r) for a, r in results if r.refused]
    if refused:
        _, result = refused[0]
        yield _left(project, site, "FM103", result.refused, result.remedy)
        return
    is_on_meta = may_be_on_meta(project, site)
    is_known = not unknown and not is_on_meta and site.kind == "call" and enabling(project) is None
    new = _improved(project, site, results, unknown=unknown)
    inline = _as_inline(project, site, results, new) if is_known else None
    more = {"param_init_fn"} if is_on_meta else set()
    done = inline or _as_helper_call(project, site, results, unknown, more, new.mesh)
    if inline is None:
        done, new = _with_improvements(site, done, new)
    yield done
    yield from _not_added(site, new.left_out)


def _with_improvements(site: WrapCall, done: Finding, new: Improved) -> tuple[Finding, Improved]:
    """The call of the helper module with what `--modernize` adds around it, and what it could add."""
    edits = passed_through(site, new.before)
    added = added_edits(site, new.calls) if new.calls and site.kind == "call" else None
    if added is None and new.calls:
        told = ((word, _PART_OF_MORE) for word in new.asked_behind)
        new = dataclasses.replace(new, left_out=(*new.left_out, *told))
    return dataclasses.replace(done, edits=(*done.edits, *edits, *(added or ()))), new


def _improved(
    project: Project, site: WrapCall, results: list[tuple[Argument, Translation]], *, unknown: bool
) -> Improved:
    """What `--modernize` adds to a model, once for all of its parts."""
    if not project.options.modernize or is_nested(project, site):
        return Improved()
    nested = [other for other in project.wraps if is_nested(project, other)]
    has_units = unknown or any(argument.name == "auto_wrap_policy" for argument, _ in results)
    has_parts = any(other.module is site.module for other in nested)
    return improved(project, site, results, has_units=has_units or bool(nested), has_parts=has_parts)


def _as_inline(
    project: Project, site: WrapCall, results: list[tuple[Argument, Translation]], new: Improved
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
    if new.mesh:  # of the device's type already
        parts = [dataclasses.replace(p, shared={}) if "mesh" in p.shared else p for p in parts]
        parts.append(Inline(shared={"mesh": new.mesh}))
    before = [join([function, ("({model})",)], "") for function in new.before]
    parts += [Inline(before=tuple(before), after=new.calls)] if before or new.calls else []
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


def _units_without_policy(unknown: bool) -> str:
    """What is told of units where no policy is given by name."""
    return "by what `**` holds when the program runs" if unknown else "the whole model is one unit"


def _as_helper_call(
    project: Project,
    site: WrapCall,
    results: list[tuple[Argument, Translation]],
    unknown: bool,
    more: set[str],
    mesh: Code,
) -> Finding:
    needs = {argument.name for argument, result in results if result.keep} | more
    needs |= {"**"} if unknown else set()
    needs |= {"device_mesh"} if mesh else set()
    needs |= {"parts"} if enabling(project) is not None else set()
    nested = is_nested(project, site) and ("mixed_precision" in needs or unknown)
    policies = [ast.unparse(a.node) for a, r in results if a.name == "auto_wrap_policy" and r.keep]
    return finding(
        site.module,
        site.node,
        "FM102",
        "the FSDP1 wrap becomes a call of the helper module, because its values are decided at run time",
        safety=Safety.SAFE,
        edits=helper_call_edits(project, site, results, is_nested=nested, is_open=unknown, mesh=mesh),
        needs=needs | ({"is_root"} if nested else set()),
        shares=taken_by_wrap(project, site),
        detail=f"by the policy `{policies[0]}`" if policies else _units_without_policy(unknown),
    )
