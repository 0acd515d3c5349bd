"""Edits that take items out of a call, an import or a dict, with the commas and lines that were theirs."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence

from codemods.analysis.module import Module
from codemods.model import Edit, Span

_FOR_LINTERS = re.compile(r"(noqa\b|type: ?ignore|(pylint|pyright|fmt|isort):)", re.IGNORECASE)


def delete_argument(module: Module, call: ast.Call, argument: ast.expr | ast.keyword) -> Edit:
    """Remove one argument of a call with its comma; its line too where it stands alone on it."""
    return delete_arguments(module, call, [argument])[0]


def delete_arguments(module: Module, call: ast.Call, going: Collection[ast.expr | ast.keyword]) -> list[Edit]:
    """Remove arguments of a call with their commas; their lines too where nothing else stands on them."""
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    arguments.sort(key=lambda node: module.span(node).start)
    spans = [module.span(node) for node in arguments]
    positions = [i for i, node in enumerate(arguments) if node in going]
    names = [node.arg or "" if isinstance(node, ast.keyword) else "" for node in arguments]
    return _delete_spans(module, spans, positions, module.span(call).end - 1, names)


def delete_elements(
    module: Module, display: ast.List | ast.Tuple | ast.Set, going: Collection[ast.expr]
) -> list[Edit]:
    """Remove some elements of a display with their commas."""
    spans = [module.span(element) for element in display.elts]
    positions = [i for i, element in enumerate(display.elts) if element in going]
    return _delete_spans(module, spans, positions, module.span(display).end - 1)


def delete_parameters(module: Module, function: ast.FunctionDef, names: Collection[str]) -> list[Edit]:
    """Remove some of a function's parameters with their defaults and commas, and a `*` that nothing follows
    then; not what takes any number of them."""
    given = function.args
    defaults = [*[None] * (len(given.args) - len(given.defaults)), *given.defaults, *given.kw_defaults]
    plain = [*given.args, *given.kwonlyargs]
    spans = [
        Span(module.span(parameter).start, module.span(default or parameter).end)
        for parameter, default in zip(plain, defaults, strict=True)
    ]
    going = [i for i, parameter in enumerate(plain) if parameter.arg in names]
    if given.kwonlyargs and given.vararg is None:
        first = len(given.args)
        behind = spans[first - 1].end if first else module.text.index("(", module.span(function).start)
        star = module.text.index("*", behind)
        spans.insert(first, Span(star, star + 1))
        going = [i + (i >= first) for i in going]
        if {*range(first + 1, len(spans))} <= set(going):
            going = sorted([*going, first])
    return _delete_spans(module, spans, going, _closing(module, spans[-1].end))


def _closing(module: Module, position: int) -> int:
    """The bracket behind the last item of a list."""
    found = re.compile(r"(?:[\s,]|#[^\n]*\n)*").match(module.text, position)
    return found.end() if found is not None else position


def named_comment(name: str, comment: str) -> str:
    """The comment of an argument that goes, saying whose it was; empty where it only spoke to a linter."""
    words = comment.lstrip("#").strip()
    if _FOR_LINTERS.match(words):
        return ""
    return comment if not name or not words or "fsdp-migrate" in words else f"# {name}: {words}"


def delete_aliases(module: Module, statement: ast.ImportFrom, going: Collection[ast.alias]) -> list[Edit]:
    """Remove some of the names of a `from ... import` statement with their commas."""
    spans = [module.span(alias) for alias in statement.names]
    positions = [i for i, alias in enumerate(statement.names) if alias in going]
    return _delete_spans(module, spans, positions, module.span(statement).end)


def delete_dict_items(module: Module, display: ast.Dict, positions: Collection[int]) -> list[Edit]:
    """Remove some `key: value` pairs of a dict display."""
    spans = []
    for key, value in zip(display.keys, display.values, strict=True):
        end = module.span(value).end
        start = (
            module.span(key).start
            if key is not None
            else module.text.rindex("**", 0, module.span(value).start)
        )
        spans.append(Span(start, end))
    return _delete_spans(module, spans, sorted(positions), module.span(display).end - 1)


def _delete_spans(
    module: Module, spans: list[Span], going: Sequence[int], closing: int, names: Sequence[str] = ()
) -> list[Edit]:
    """Remove items of a list; those at its end go together, and so do neighbours on one line.

    Args:
        going: positions of the items, in order.
        names: what the items are called, if anything: their comments say so when they are gone.
    """
    edits: list[Edit] = []
    staying = len(spans)
    while staying - 1 in going:
        staying -= 1
    if 0 < staying < len(spans) - 1:
        comma = module.text.index(",", spans[staying - 1].end)
        if "#" not in module.text[comma : spans[-1].end]:
            edits.append(Edit(module.path, Span(comma, spans[-1].end), ()))
            going = [position for position in going if position < staying]
    while going:
        first, *rest = going
        last = first
        while rest and rest[0] == last + 1 and _share_line(module, spans[last], spans[rest[0]]):
            last = rest.pop(0)
        whole = Span(spans[first].start, spans[last].end)
        name = names[first] if names and first == last else ""
        edits.append(_delete_span(module, [*spans[:first], whole, *spans[last + 1 :]], first, closing, name))
        going = rest
    return edits


def _share_line(module: Module, one: Span, following: Span) -> bool:
    return module.line_of(one.end) == module.line_of(following.start)


def _delete_span(module: Module, spans: list[Span], position: int, closing: int, name: str = "") -> Edit:
    span = spans[position]
    text = module.text
    after = re.compile(r"\s*,").match(text, span.end)
    end = after.end() if after and after.end() <= closing else span.end
    line_start = module.line_start(span.start)
    if not text[line_start : span.start].strip():
        rest = text[end : module.line_end(end)]
        if not rest.strip():
            return Edit(module.path, Span(line_start, module.line_end(end)), ())
        if rest.strip().startswith("#"):
            comment = rest.strip()
            start = end + rest.index(comment)
            named = named_comment(name, comment)
            if not named:
                return Edit(module.path, Span(line_start, module.line_end(end)), ())
            if named == comment:
                return Edit(module.path, Span(span.start, start), ())
            return Edit(module.path, Span(span.start, start + len(comment)), (named,))
    if end > span.end:
        following = re.compile(r"[ \t]*").match(text, end)
        assert following is not None
        stop = following.end()
        if stop >= closing and position and "#" not in text[spans[position - 1].end : span.start]:
            return Edit(module.path, Span(spans[position - 1].end, span.end), ())
        if text[stop : stop + 1] in ("\n", "\r", "#"):  # last on its line: what stands before keeps its comma
            start = span.start
            while start > line_start and text[start - 1] in " \t":
                start -= 1
            return Edit(module.path, Span(start, end), ())
        return Edit(module.path, Span(span.start, stop), ())
    if position:
        comma = text.index(",", spans[position - 1].end)
        if "#" in text[comma : span.start]:
            return Edit(module.path, Span(span.start, end), ())
        return Edit(module.path, Span(comma, end), ())
    return Edit(module.path, Span(span.start, end), ())
