"""The statements of a rewritten file that the file did not have before, as a program of their own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.editing.apply import lines_of

_NEWLINE = re.compile(r"\r\n?")


def new_statements(before: str, after: str, tree: ast.Module) -> str:
    """A program of the statements of `after` that are not in `before`; it is made to be parsed, not run.

    Of a class or function that changed there are its head and, one by one, the statements in it that are new,
    so that a changed line in a long class brings little more than itself.

    Args:
        tree: of `after`.
    """
    return "".join(_Search(lines_of(after), "\n" + _NEWLINE.sub("\n", before)).new(tree))


@dataclass(frozen=True, slots=True)
class _Search:
    """Compares statements, as whole lines, with the old text.

    Attributes:
        lines: of the new text, as Python counts them, with their endings.
        old: the old text after a line ending, all of them `\\n`.
    """

    lines: list[str]
    old: str

    def new(self, block: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
        """The new statements of a block."""
        for statement in block.body:
            first, last = _first_line(statement), statement.end_lineno or 0
            text = self._text(first, last)
            if "\n" + _NEWLINE.sub("\n", text) in self.old:
                continue
            if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inside = _first_line(statement.body[0])
                if inside > statement.lineno:
                    indent = _indent(self.lines[inside - 1]) or " "
                    yield _alone(f"{self._text(first, inside - 1)}{indent}pass\n")
                    yield from self.new(statement)
                    continue
            yield _alone(text)

    def _text(self, first: int, last: int) -> str:
        """Whole lines, the last one ended."""
        text = "".join(self.lines[first - 1 : last])
        return text if text.endswith(("\n", "\r")) else text + "\n"


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", None)
    return decorators[0].lineno if decorators else node.lineno


def _alone(text: str) -> str:
    return f"if 1:\n{text}" if text[:1] in " \t" else text


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]
