"""The wrap call as a call of the helper module: same keywords, those without effect left out."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from codemods.analysis.holding import WrapCall
from codemods.analysis.module import Module
from codemods.editing.code import append_argument, code, delete
from codemods.editing.removal import delete_arguments, delete_dict_items
from codemods.model import Code, Edit, Span
from codemods.partial_calls import named_modules
from codemods.project import Project
from codemods.shard_call import Argument, Translation

_NAME = "shard_model"
_NEVER_READ = ("use_orig_params", "limit_all_gathers", "backward_prefetch")


def helper_call_edits(
    project: Project,
    site: WrapCall,
    results: Sequence[tuple[Argument, Translation]],
    *,
    is_nested: bool,
    is_open: bool,
    mesh: Code = (),
) -> list[Edit]:
    """Edits that turn `FSDP(m, ...)` into `shard_model(m, ...)`.

    Args:
        is_nested: the module is part of a model that is sharded around it.
        is_open: keywords are given that are not known.
        mesh: one that is given besides.
    """
    module, call = site.module, site.node
    edits = [Edit(module.path, module.span(site.function), code(None, f"{{helper.{_NAME}}}"))]
    edits += _named_module(project, site)
    edits += dropped_edits(without_effect(results, is_open=is_open))
    for argument, result in results:
        if result.keep and _is_by_position(argument):
            home = argument.module
            start = home.span(argument.item).start
            edits.append(Edit(home.path, Span(start, start), (f"{argument.name}=",)))
    edits += _renamed([argument for argument, result in results if result.keep])
    going = [argument.item for argument in without_effect(results, is_open=is_open)]
    if is_nested:
        edits.append(append_argument(module, call, "is_root=False", going=going))
    if mesh:
        added = append_argument(module, call, "device_mesh=", going=going)
        edits.append(Edit(module.path, added.span, (*added.code, *mesh)))
    edits = list(dict.fromkeys(edits))
    return edits + _realigned(site, edits)


def without_effect(results: Sequence[tuple[Argument, Translation]], *, is_open: bool) -> list[Argument]:
    """The arguments that can go: not `settings["auto_wrap_policy"] = None` where that takes the place of a
    value that stays, or of one that is not known."""
    kept = {argument.name for argument, result in results if result.keep}

    def may_go(argument: Argument) -> bool:
        is_alone = argument.at_call or argument.name in _NEVER_READ or not is_open
        return is_alone and argument.name not in kept

    return [argument for argument, result in results if not result.keep and may_go(argument)]


def _renamed(arguments: Iterable[Argument]) -> list[Edit]:
    """Keywords that had another name in older releases of torch."""
    edits = []
    for argument in arguments:
        module, item = argument.module, argument.item
        if isinstance(item, ast.keyword) and item.arg is not None and item.arg != argument.name:
            start = module.span(item).start
            edits.append(Edit(module.path, Span(start, start + len(item.arg)), (argument.name,)))
        elif isinstance(item, ast.Constant) and item.value != argument.name:
            edits.append(Edit(module.path, module.span(item), (f'"{argument.name}"',)))
    return edits


def _is_by_position(argument: Argument) -> bool:
    """Whether a value stands by its position in the wrap call, or in a call of the `partial`."""
    holder = argument.module.parent(argument.item)
    return isinstance(holder, ast.Call) and argument.item in holder.args


def _named_module(project: Project, site: WrapCall) -> list[Edit]:
    found = [(site.module, keyword) for keyword in site.node.keywords if keyword.arg == "module"]
    found += named_modules(project, site) if site.kind == "partial" else []
    starts = [(module, module.span(keyword).start) for module, keyword in found]
    return [Edit(module.path, Span(start, start + len("module")), ("model",)) for module, start in starts]


def dropped_edits(arguments: Iterable[Argument]) -> list[Edit]:
    """Remove keywords where they are written: at the call, in a dict, or as an assignment to its key."""
    edits: list[Edit] = []
    of_call: dict[ast.Call, tuple[Module, list[ast.expr | ast.keyword]]] = {}
    of_dict: dict[ast.Dict, tuple[Module, list[int]]] = {}
    for argument in arguments:
        item, module = argument.item, argument.module
        holder = argument.site.node if argument.at_call else module.parent(item)
        is_of_call = argument.at_call or isinstance(item, ast.keyword) or _is_by_position(argument)
        if isinstance(holder, ast.Call) and is_of_call:
            assert isinstance(item, ast.keyword | ast.expr)
            home = argument.site.module if argument.at_call else module
            of_call.setdefault(holder, (home, []))[1].append(item)
        elif isinstance(item, ast.Constant) and isinstance(holder, ast.Dict):
            position = next(i for i, key in enumerate(holder.keys) if key is item)
            of_dict.setdefault(holder, (module, []))[1].append(position)
        elif isinstance(item, ast.Subscript):
            edits.append(delete(module, module.statement(item)))
    for call, (module, items) in of_call.items():
        edits += delete_arguments(module, call, items)
    for display, (module, positions) in of_dict.items():
        edits += delete_dict_items(module, display, positions)
    return edits


def _realigned(site: WrapCall, edits: Sequence[Edit]) -> list[Edit]:
    """Where arguments are aligned under the first one, they move with it."""
    module, call = site.module, site.node
    first = min((*call.args, *call.keywords), key=lambda node: module.span(node).start)
    head = module.span(site.function)
    start = module.span(first).start
    column = start - module.line_start(start)
    shift = len(_NAME) - (head.end - head.start)
    if module.line_of(start) != module.line_of(head.end) or shift <= 0:
        return []
    moved: list[Edit] = []
    for line in range(module.line_of(start) + 1, module.line_of(module.span(call).end) + 1):
        position = module.offset(line, 0)
        text = module.text[position : module.line_end(position)]
        indent = len(text) - len(text.lstrip(" "))
        if indent < column or not text.strip():
            return [] if indent < column and text.strip() else moved
        if not any(e.span.start <= position < e.span.end for e in edits):
            moved.append(Edit(module.path, Span(position, position), (" " * shift,)))
    return moved
