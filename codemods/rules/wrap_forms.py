"""Other ways to wrap: `enable_wrap` and `wrap`, subclasses. Source: `torch.distributed.fsdp.wrap`."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator

from codemods.analysis.enabled import ENABLE, calls_function, wrapper_of
from codemods.editing.helper_call import dropped_edits, without_effect
from codemods.editing.wrap_target import is_nested
from codemods.enabled_wraps import Enabling, enabling, gives_fsdp1
from codemods.rule import (
    Edit,
    Finding,
    Module,
    Project,
    Safety,
    Span,
    WrapCall,
    code,
    finding,
    replace,
    rule,
    unwrap_block,
)
from codemods.shard_call import Argument, Translation, keyword_rules
from codemods.subclass_calls import subclass_calls, taken_by
from codemods.torch_names import FSDP
from codemods.wrap_site import arguments_of, made_elsewhere, made_outside, refusal, taken_by_wrap


@rule(
    "enable_wrap",
    {
        "FM105": "`enable_wrap` or `wrap` is left to a person",
        "FM107": "the `wrap` calls of an `enable_wrap` block become calls of the helper module",
    },
    order=20,
)
def enable_wrap(project: Project) -> Iterator[Finding]:
    """`wrap(m)` within `with enable_wrap(wrapper_cls=FSDP, **settings)` becomes `shard_model(m, **settings)`.

    The block goes, the order of the calls stays, and parts of the model that is wrapped last are sharded as
    parts of it.

    A module that is wrapped twice, `wrap(wrap(m))`, is sharded once. Where a block is entered elsewhere than
    its `wrap` calls stand (a context that is handed on, a function that the block calls), both stay: torch's
    `enable_wrap` calls whatever it is given, and is given `wrapper_cls=shard_model`. What is sharded around
    such parts takes the casting of the inputs from them, as FSDP1's root did.

    Left to a person: blocks of another wrapper class, and `wrap` calls for which these files have no block.
    Shard what was wrapped with fully_shard once it is built, then the model around it.
    """
    found = enabling(project)
    if found is not None:
        yield from _at_run_time(project, found)
        return
    blocks: dict[ast.With, list[WrapCall]] = {}
    for site in project.wraps:
        if site.block is not None:
            blocks.setdefault(site.block, []).append(site)
    for module, call in project.calls_of(ENABLE):
        block = next((b for b in blocks if b.items[0].context_expr is call), None)
        if block is not None and all(refusal(project, site) is None for site in blocks[block]):
            yield _translated(project, module, block, blocks[block])
        elif not calls_function(project.index, module, call):
            yield _left_block(project, module, call)
            for site in blocks.get(block, []) if block is not None else []:
                yield _left(project, site)
    for site in project.wraps:
        if site.kind == "wrap" and site.block is None:
            yield _left(project, site)


def _left_block(project: Project, module: Module, call: ast.Call) -> Finding:
    message = "FSDP2 has no `enable_wrap`: modules are sharded after they are built"
    if not gives_fsdp1(project, module, call):
        message = "`enable_wrap` wraps with something else than FSDP1's class, or with what is not known"
    return finding(
        module,
        call,
        "FM105",
        message,
        remedy="remove the block and shard what is wrapped in it with fully_shard and these settings",
        shares=taken_by(project, [(module, call)]),
    )


def _at_run_time(project: Project, found: Enabling) -> Iterator[Finding]:
    """Blocks and wraps that meet only when the program runs: all of them, or none."""
    rules = keyword_rules()
    opened = {site: arguments_of(project, site) for site in (*found.blocks, *found.sites)}
    results = {
        site: [(a, rules[a.name](a)) for a in arguments if a.name in rules]
        for site, (arguments, _) in opened.items()
    }
    reasons = {
        site: why
        for site, (arguments, _) in opened.items()
        if (why := _reason(project, site, arguments, results[site])) is not None
    }
    for site, (_, unknown) in opened.items():
        if reasons:
            is_block = site.kind == "block"
            left = _left_block(project, site.module, site.node) if is_block else _left(project, site)
            message, remedy = reasons.get(site, (left.message, left.remedy))
            yield dataclasses.replace(left, message=message, remedy=remedy)
            continue
        for _, result in results[site]:
            yield from result.findings
        yield _calling_helper(project, site, results[site], unknown=unknown or not found.sites)


def _reason(
    project: Project,
    site: WrapCall,
    arguments: list[Argument],
    results: list[tuple[Argument, Translation]],
) -> tuple[str, str] | None:
    """What keeps a block or a `wrap` from calling the helper module, and what to do."""
    refused_form = refusal(project, site)
    if refused_form is not None:
        return refused_form
    for argument in arguments:
        if argument.name not in keyword_rules():
            return f"FSDP1 has no keyword `{argument.name}`", "remove it, and rewrite again"
        outside = made_outside(project, argument)
        if outside is not None:
            return made_elsewhere(outside)
    return next(((r.refused, r.remedy) for _, r in results if r.refused), None)


def _calling_helper(
    project: Project, site: WrapCall, results: list[tuple[Argument, Translation]], *, unknown: bool
) -> Finding:
    """A block that is given `shard_model`, or a `wrap` that stays, with its keywords."""
    module, call = site.module, site.node
    wrapper = wrapper_of(call) if site.kind == "block" else None
    if wrapper is not None:
        edits = [replace(module, wrapper, code(None, "{helper.shard_model}"))]
        message = "what `enable_wrap` wraps with is the helper module's function"
    else:
        edits = [replace(module, call.func, (module.code(call.func),))]  # it stays, and is spoken of
        message = "`wrap` calls what its block is given, and that shards"
    edits += dropped_edits(without_effect(results, is_open=unknown))
    needs = {argument.name for argument, result in results if result.keep}
    return finding(
        module,
        call,
        "FM107",
        message,
        safety=Safety.SAFE,
        edits=list(dict.fromkeys(edits)),
        needs=needs | ({"**"} if unknown else set()) | {"parts"},
        shares=taken_by_wrap(project, site) | {f"enable_wrap@{project.group(module.path)}"},
        detail="what is wrapped by hand",
    )


def _left(project: Project, site: WrapCall) -> Finding:
    message = "FSDP2 has no `wrap`: modules are sharded after they are built"
    if not any(True for _ in project.calls_of(ENABLE)):
        message = "no file that is rewritten enters `enable_wrap`, with which alone `wrap` shards"
    return finding(
        site.module,
        site.node,
        "FM105",
        message,
        remedy="call fully_shard on this module once it is built, before the model around it",
        shares=taken_by_wrap(project, site),
    )


def _translated(project: Project, module: Module, block: ast.With, sites: list[WrapCall]) -> Finding:
    arguments, unknown = arguments_of(project, sites[0])
    rules = keyword_rules()
    results = [(a, rules[a.name](a)) for a in arguments]
    needs = {a.name for a, r in results if r.keep} | ({"**"} if unknown else set())
    edits: list[Edit] = [unwrap_block(module, block)]
    edits += dropped_edits([a for a in without_effect(results, is_open=False) if not a.at_call])
    shared = [f"{a.name}={module.code(a.node)}" for a, r in results if a.at_call and r.keep]
    shared += [f"**{module.code(k.value)}" for k in sites[0].settings.keywords if k.arg is None]
    twice = {site.node for site in sites}
    for site in sites:
        nested = is_nested(project, site) and ("mixed_precision" in needs or unknown)
        needs |= {"is_root"} if nested else set()
        text = ", ".join([*shared, *(["is_root=False"] if nested else [])])
        inner = site.node.args[0]
        if inner in twice:
            # `wrap(wrap(m))` made one unit with parameters; the outer one had none.
            span, kept = module.span(site.node), module.span(inner)
            edits.append(Edit(module.path, Span(span.start, kept.start), ()))
            edits.append(Edit(module.path, Span(kept.end, span.end), ()))
            continue
        end = module.span(inner).end
        edits.append(Edit(module.path, module.span(site.node.func), code(None, "{helper.shard_model}")))
        edits.append(Edit(module.path, Span(end, end), (f", {text}" if text else "",)))
    return finding(
        module,
        block.items[0].context_expr,
        "FM107",
        "the wraps of an `enable_wrap` block become calls of the helper module",
        safety=Safety.SAFE,
        edits=list(dict.fromkeys(edits)),
        needs=needs,
        shares=taken_by_wrap(project, sites[0]),
        detail="what is wrapped by hand",
    )


@rule(
    "subclass of FullyShardedDataParallel",
    {"FM106": "a subclass of FSDP1's wrapper"},
    order=20,
)
def subclass(project: Project) -> Iterator[Finding]:
    """A subclass of `FullyShardedDataParallel` is left to a person: FSDP2 has no wrapper to derive from.

    `fully_shard` changes the model's own class to one that is also an `FSDPModule`. What the subclass added
    becomes a function that shards the model, or methods of the model itself. Configuration types whose values
    it is given stay torch's until then, and so do other wrap calls that take them.
    """
    calls = subclass_calls(project)
    for use in project.uses(FSDP):
        parent = use.module.parent(use.node)
        if isinstance(parent, ast.ClassDef) and any(base is use.node for base in parent.bases):
            yield finding(
                use.module,
                use.node,
                "FM106",
                f"`{parent.name}` derives from FSDP1's wrapper; FSDP2 has none",
                remedy="make it a function that calls fully_shard, and what it added methods of the model",
                shares=taken_by(project, calls[parent]),
            )
