"""Breaks lines that a rewrite made longer than the repository's line length, the way its formatter would.

Only lines that were not in the file before are touched. The style is that of black and ruff: the last
bracket opens, its contents on one line if they fit, else one item a line with a trailing comma; conditional
expressions and boolean operators in parentheses, one operand a line."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections import Counter
from dataclasses import dataclass

from codemods.editing.hanging import with_hanging_arguments

_STEP = 4
_LINE_END = re.compile(r"(\r\n|\r|\n)")


def wrap_long_lines(before: str, after: str, width: int, newline: str) -> str:
    """The text with its new long lines broken; lines that cannot be broken stay.

    Args:
        before: the text before the rewrite.
        after: valid Python.
    """
    old = {line.strip() for line in _LINE_END.split(before)}
    # Not `splitlines`: it also breaks at form feeds and other characters that Python keeps within a line.
    parts = _LINE_END.split(after)
    lines, ends = parts[::2], [*parts[1::2], ""]
    long = [n for n, line in enumerate(lines, 1) if len(line) > width and line.strip() not in old]
    if not long:
        return after
    text = "\n".join(lines) + "\n"
    tree = ast.parse(text)
    starts = Counter(node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt))
    # Several statements on a line are their author's style; a bracket opened among them would hide the rest.
    long = [number for number in long if starts[number] < 2]
    commented = _comment_columns(text)
    call_lines = list(lines)
    if with_hanging_arguments(call_lines, tree, set(long), set(commented)):
        whole = _without_emptied(lines, call_lines, ends, newline)
        return wrap_long_lines(before, whole, width, newline)
    nodes, contents = _nodes_by_line(tree), _contents(tree)
    for number in long:
        line = lines[number - 1][: commented.get(number)].rstrip()
        comment = lines[number - 1][len(line) :]
        if len(line) <= width:
            continue
        if number in contents and not comment:
            lines[number - 1] = _with_tabs(line, _Breaker(line, width).one_a_line(contents[number]))
            continue
        for node in nodes.get(number, []):
            broken = _Breaker(line, width).broken(node)
            if broken is not None:
                lines[number - 1] = _with_tabs(line, broken) + comment
                break
    return "".join(line.replace("\n", newline) + end for line, end in zip(lines, ends, strict=True))


def _with_tabs(line: str, broken: str) -> str:
    """The lines that a line was broken into, indented with tabs where it is."""
    indent = line[: len(line) - len(line.lstrip())]
    if not indent.endswith("\t"):
        return broken
    pad = re.compile(rf"^ {{{len(indent)}}}((?: {{{_STEP}}})*)", re.MULTILINE)
    return pad.sub(lambda found: indent + "\t" * (len(found[1]) // _STEP), broken)


def _without_emptied(old: list[str], new: list[str], ends: list[str], newline: str) -> str:
    """The text of lines of which some were taken into others."""
    kept = [(line, end) for was, line, end in zip(old, new, ends, strict=True) if line or not was]
    return "".join(line.replace("\n", newline) + end for line, end in kept)


def _comment_columns(text: str) -> dict[int, int]:
    """Line -> column of its comment."""
    found: dict[int, int] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                found[token.start[0]] = token.start[1]
    except tokenize.TokenError:
        pass  # a backslash as the last thing in the file: Python takes it, its tokenizer does not
    return found


def _nodes_by_line(tree: ast.Module) -> dict[int, list[ast.AST]]:
    """Line -> the expressions and keywords that lie on it and nowhere else, outermost first."""
    found: dict[int, list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.keyword) and node.lineno == node.end_lineno:
            found.setdefault(node.lineno, []).append(node)
    for nodes in found.values():
        nodes.sort(key=lambda n: (n.col_offset, -(n.end_col_offset or 0), isinstance(n, ast.expr)))  # type: ignore[attr-defined]
    return found


def _contents(tree: ast.Module) -> dict[int, list[ast.AST]]:
    """Line -> the arguments of a call, several, that have this line to themselves."""
    found: dict[int, list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) + len(node.keywords) > 1:
            items: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
            line = items[0].lineno
            is_own = (node.func.end_lineno or 0) < line < (node.end_lineno or 0)
            if is_own and all(item.lineno == item.end_lineno == line for item in items):
                found[line] = [*sorted(items, key=lambda item: item.col_offset)]
    return found


class _Pair(ast.AST):
    """A key of a dict display with its value, as if it were one node."""

    def __init__(self, key: ast.expr, value: ast.expr) -> None:
        super().__init__()
        self.key, self.value = key, value
        self.col_offset, self.end_col_offset = key.col_offset, value.end_col_offset


@dataclass(slots=True)
class _Breaker:
    """Breaks one line at one of its expressions."""

    line: str
    width: int

    def broken(self, node: ast.AST) -> str | None:
        """The line broken within `node`, which must reach the line's end but for `:`, `,` or closing text."""
        start, end = self._columns(node)
        head, tail = self.line[:start], self.line[end:]
        if tail.strip() not in ("", ":", ",") or not self.line.isascii():
            return None
        indent = len(self.line) - len(self.line.lstrip())
        is_statement = bool(head.strip())
        new = self._render(node, start, indent, tail, parenthesize=is_statement)
        result = head + new + tail
        return result if new != self._text(node) and self._fits(result) else None

    def one_a_line(self, items: list[ast.AST]) -> str:
        """The arguments of a call that share this line, each on its own."""
        start, end = self._columns(items[0])[0], self._columns(items[-1])[1]
        if self.line[:start].strip() or self.line[end:].strip(" ,") or not self.line.isascii():
            return self.line
        bounds = itertools.pairwise(items)
        if any(self.line[self._columns(a)[1] : self._columns(b)[0]].strip() != "," for a, b in bounds):
            return self.line  # parentheses of the user's: left as they are
        return "\n".join(f"{' ' * start}{self._item(item, start, ',')}," for item in items)

    def _fits(self, text: str) -> bool:
        return all(len(line) <= self.width for line in text.split("\n"))

    def _columns(self, node: ast.AST) -> tuple[int, int]:
        return node.col_offset, node.end_col_offset  # type: ignore[attr-defined]

    def _text(self, node: ast.AST) -> str:
        start, end = self._columns(node)
        return self.line[start:end]

    def _inner(self, node: ast.AST, low: int, high: int) -> str:
        """The text of a part with the parentheses around it, as far as they lie in these columns."""
        start, end = self._columns(node)
        while True:
            left, right = self.line[low:start].rstrip(), self.line[end:high].lstrip()
            if not (left.endswith("(") and right.startswith(")")):
                return self.line[start:end]
            start = low + len(left) - 1
            end = high - len(right) + 1

    def _render(
        self, node: ast.AST, column: int, indent: int, tail: str, *, parenthesize: bool = False
    ) -> str:
        flat = self._text(node)
        if column + len(flat) + len(tail) <= self.width:
            return flat
        match node:
            case ast.keyword():
                name = f"{node.arg}=" if node.arg else "**"
                return name + self._render(node.value, column + len(name), indent, tail)
            case ast.Call() if not node.args and not node.keywords and isinstance(node.func, ast.Attribute):
                trailer = f".{node.func.attr}()"
                return self._render(node.func.value, column, indent, trailer + tail) + trailer
            case ast.Call():
                head = self.line[self._columns(node)[0] : self._opening(node)]
                return self._brackets(head + "(", self._arguments(node), ")", indent, node)
            case ast.Attribute():
                trailer = f".{node.attr}"
                return self._render(node.value, column, indent, trailer + tail) + trailer
            case ast.List() | ast.Set():
                return self._brackets(flat[0], list(node.elts), flat[-1], indent, node)
            case ast.Dict() if None not in node.keys:
                pairs = [_Pair(k, v) for k, v in zip(node.keys, node.values, strict=True) if k is not None]
                return self._brackets("{", list(pairs), "}", indent, node)
            case _Pair():
                key = f"{self._text(node.key)}: "
                return key + self._render(node.value, column + len(key), indent, tail)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp() if flat[0] in "[{(":
                return self._comprehension(node, flat, indent)
            case ast.IfExp() | ast.BoolOp() | ast.BinOp() | ast.Compare() if parenthesize:
                inner = self._operands(node, indent + _STEP)
                return f"(\n{' ' * (indent + _STEP)}{inner}\n{' ' * indent})"
        return flat

    def _arguments(self, node: ast.Call) -> list[ast.AST]:
        given: list[ast.AST] = [*node.args, *node.keywords]
        return sorted(given, key=lambda n: n.col_offset)  # type: ignore[attr-defined]

    def _opening(self, node: ast.Call) -> int:
        """Column of a call's opening parenthesis."""
        return self.line.index("(", node.func.end_col_offset or 0)

    def _brackets(
        self, opening: str, items: list[ast.AST], closing: str, indent: int, around: ast.AST
    ) -> str:
        start, end = self._columns(around)
        low = self._opening(around) + 1 if isinstance(around, ast.Call) else start + 1
        if any(self._inner(item, low, end - 1) != self._text(item) for item in items):
            return self._text(around)  # parentheses of the user's: left as they are
        inner = indent + _STEP
        pad = " " * inner
        flat = ", ".join(self._text(item) for item in items)
        is_display = not isinstance(around, ast.Call) and len(items) > 1  # formatters give each item a line
        if inner + len(flat) <= self.width and not is_display:
            return f"{opening}\n{pad}{flat}\n{' ' * indent}{closing}"
        comma = "," if len(items) > 1 else ""
        rows = [pad + self._item(item, inner, comma) + comma for item in items]
        return "\n".join([opening, *rows, " " * indent + closing])

    def _item(self, node: ast.AST, indent: int, comma: str) -> str:
        """One item on a line of its own; a chain of calls that is too long has one call a line."""
        calls: list[str] = []
        base = node
        while isinstance(base, ast.Call) and not base.args and not base.keywords:
            if not isinstance(base.func, ast.Attribute):
                break
            calls.insert(0, f".{base.func.attr}()")
            base = base.func.value
        if len(calls) < 2 or not isinstance(base, ast.Call) or indent + len(self._text(node)) <= self.width:
            return self._render(node, indent, indent, comma)
        pad = "\n" + " " * indent
        return pad.join([self._render(base, indent, indent, ""), *calls])

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, flat: str, indent: int
    ) -> str:
        pad = " " * (indent + _STEP)
        inside = flat[1:-1].strip()
        if len(pad) + len(inside) <= self.width:
            return f"{flat[0]}\n{pad}{inside}\n{' ' * indent}{flat[-1]}"
        first, last = self._columns(node)
        around = (first + 1, last - 1)
        if isinstance(node, ast.DictComp):
            rows = [f"{self._inner(node.key, *around)}: {self._inner(node.value, *around)}"]
        else:
            rows = [self._inner(node.elt, *around)]
        for part in node.generators:
            head = f"for {self._inner(part.target, *around)} in "
            whole = self._inner(part.iter, *around)
            if whole == self._text(part.iter):
                whole = self._render(part.iter, len(pad) + len(head), indent + _STEP, "")
            rows.append(head + whole)
            rows += [f"if {self._inner(test, *around)}" for test in part.ifs]
        return "\n".join([flat[0], *(pad + row for row in rows), " " * indent + flat[-1]])

    def _operands(self, node: ast.expr, indent: int) -> str:
        flat = self._text(node)
        if indent + len(flat) <= self.width:
            return flat
        pad = "\n" + " " * indent
        around = self._columns(node)
        match node:
            case ast.IfExp():
                body, test, other = (self._inner(n, *around) for n in (node.body, node.test, node.orelse))
                return pad.join([body, f"if {test}", f"else {other}"])
            case ast.BoolOp():
                word = "and" if isinstance(node.op, ast.And) else "or"
                first, *rest = [self._inner(value, *around) for value in node.values]
                return pad.join([first, *(f"{word} {part}" for part in rest)])
        return flat
