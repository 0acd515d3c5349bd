"""Import statements that share their line with others, and text changes that reach into each other."""

from __future__ import annotations

import ast

from codemods.analysis.module import Module


def on_lines_of_their_own(module: Module, statements: set[ast.AST]) -> str:
    """The text with these statements alone on their lines: `import a; import b` becomes two lines.

    Statements behind a colon (`if x: import a`) stay where they are.
    """
    changes: list[tuple[int, int, str]] = []
    for statement in statements:
        siblings = module.block(statement)
        assert isinstance(statement, ast.stmt)
        changes += _breaks(module, siblings, siblings.index(statement))
    text = module.text
    for start, end, new in reversed(apart(text, list(dict.fromkeys(changes)))):
        text = text[:start] + new + text[end:]
    return text


def _breaks(module: Module, siblings: list[ast.stmt], at: int) -> list[tuple[int, int, str]]:
    first = at
    while first and _share_a_line(module, siblings[first - 1], siblings[first]):
        first -= 1
    start = module.span(siblings[first]).start
    indent = module.text[module.line_start(start) : start]
    if indent.strip():
        return []
    newline = module.source.newline
    changes = []
    if at > first:
        gap = module.span(siblings[at - 1]).end, module.span(siblings[at]).start
        changes.append((*gap, newline + indent))
    end = module.span(siblings[at]).end
    if at + 1 < len(siblings) and _share_a_line(module, siblings[at], siblings[at + 1]):
        changes.append((end, module.span(siblings[at + 1]).start, newline + indent))
    else:
        rest = module.text[end : module.line_end(end)]
        if rest.lstrip().startswith(";"):
            changes.append((end, end + rest.index(";") + 1, ""))
    return changes


def _share_a_line(module: Module, one: ast.stmt, other: ast.stmt) -> bool:
    return ";" in module.text[module.span(one).end : module.span(other).start].split("#")[0].split("\n")[0]


def apart(text: str, changes: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """The changes in order; what two of them both delete (a blank line between) is deleted once."""
    found: list[tuple[int, int, str]] = []
    for start, end, new in sorted(changes):
        if found and start < found[-1][1]:
            first, last, earlier = found[-1]
            if not earlier:
                found[-1] = (first, start, "")
                if last <= end:
                    found.append((start, end, new))
                elif text[end:last].strip():
                    found += [(start, end, new), (end, last, "")]
                else:  # the blank line stays, below the new lines instead of above them
                    found.append((start, end, new.removeprefix("\n")))
                continue
            if not new:
                start = min(last, end)
        found.append((start, end, new))
    return found
