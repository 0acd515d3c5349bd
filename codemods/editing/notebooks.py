"""Notebooks: the code cells as one module, and the module's new text back in the cells; everything else stays
byte for byte.

Source: nbformat 4 (`cells`, `cell_type`, `source` as a string or a list of lines); IPython's line and cell
magics.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.configuration.json_tree import read_json
from codemods.configuration.tree import Items, Mapping, Node, Scalar
from codemods.model import Span
from codemods.sources import SourceFile, names_fsdp

_CELL = re.compile(r"^# \[fsdp-migrate: code of cell (\d+)\]\n", re.MULTILINE)
_KEPT = re.compile(r"^([ \t]*)[^\n]*# \[fsdp-migrate: line (\d+)\]$", re.MULTILINE)
_LINE_MAGIC = re.compile(r"^[ \t]*(?:%|!|\?)|^[ \t]*[\w.]+\?{1,2}[ \t]*$")
_ASSIGNED_MAGIC = re.compile(r"^([ \t]*)([A-Za-z_]\w*(?:[ \t]*,[ \t]*\w+)*)[ \t]*=[ \t]*[!%]")
_LINE_END = re.compile(r"\r\n|\r|\n")
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)
"""One character of a JSON string as it is written."""
_CONTINUED = "\0"  # before a kept line that continues the one above, whatever its indentation
_PYTHON_CELL_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%memit")


@dataclass(frozen=True, slots=True)
class Cell:
    """One code cell that takes part.

    Attributes:
        number: of all cells of the notebook, from 1.
        span: of the value of `source` in the notebook's text.
        line_spans: of each source line in the notebook's text; all the same where `source` is one string.
    """

    number: int
    source: str
    span: Span
    line_spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Notebook(SourceFile):
    """A notebook as a module: `text` holds its code cells, each after a marker comment.

    Attributes:
        raw: the notebook's own text.
        kept: lines that are no Python (magics), by the number in their placeholder; see `_CONTINUED`.
    """

    raw: str = ""
    cells: tuple[Cell, ...] = ()
    kept: tuple[str, ...] = ()

    def encoded(self, text: str) -> bytes:
        """The notebook with the code of a new text in its cells."""
        sources = self._sources(text)
        out: list[str] = []
        position = 0
        for cell in self.cells:
            new = sources.get(cell.number, cell.source)
            if new != cell.source:
                out += [self.raw[position : cell.span.start], _written(self.raw, cell, new)]
                position = cell.span.end
        return "".join([*out, self.raw[position:]]).encode(self.encoding)

    def _sources(self, text: str) -> dict[int, str]:
        marks = list(_CELL.finditer(text))
        found: dict[int, str] = {}
        for position, mark in enumerate(marks):
            end = marks[position + 1].start() if position + 1 < len(marks) else len(text)
            code = _KEPT.sub(self._restored, text[mark.end() : end])
            if position == 0:
                code = text[: mark.start()] + code  # what was put at the very top
            found[int(mark.group(1))] = code.removesuffix("\n")
        return found

    def _restored(self, placeholder: re.Match[str]) -> str:
        line = self.kept[int(placeholder.group(2))]
        return line[1:] if line.startswith(_CONTINUED) else placeholder.group(1) + line.lstrip(" \t")

    def locate(self, span: Span) -> tuple[Span, int, int]:
        """Where some text of the module stands: in the notebook's own text, the cell, and the line within
        the cell, from 1."""
        mark = next((m for m in reversed(list(_CELL.finditer(self.text))) if m.start() <= span.start), None)
        if mark is None:
            return Span(0, 0), 1, 1
        cell = next(cell for cell in self.cells if cell.number == int(mark.group(1)))
        pieces = list(_characters(self.raw, cell.line_spans))
        start, inside = self._in_source(cell, mark.end(), span.start)
        end, _ = self._in_source(cell, mark.end(), max(span.start, span.end - 1))
        if not pieces:
            return Span(cell.span.start, cell.span.start), cell.number, inside
        first, last = (pieces[min(position, len(pieces) - 1)] for position in (start, end))
        return Span(first.start, last.end), cell.number, inside

    def _in_source(self, cell: Cell, code: int, position: int) -> tuple[int, int]:
        """The position in a cell's source, and its line there, of a position of the module.

        Args:
            code: where the cell's code starts in the module.
        """
        position = max(code, position)
        lines = cell.source.split("\n")
        number = min(self.text.count("\n", code, position), len(lines) - 1)
        column = position - (self.text.rfind("\n", 0, position) + 1)
        before = sum(len(line) + 1 for line in lines[:number])
        return before + min(column, len(lines[number])), number + 1

    def line_and_column(self, position: int) -> tuple[int, int]:
        """Both from 1, of a position of the notebook's own text."""
        ends = [end.end() for end in _LINE_END.finditer(self.raw, 0, position)]
        return len(ends) + 1, position - (ends[-1] if ends else 0) + 1


def read_notebook(path: str, data: bytes) -> Notebook:
    """A notebook's Python.

    Raises:
        SyntaxError: it is no notebook of format 4, or a cell that names FSDP cannot be parsed.
    """
    encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8"
    raw = data.decode(encoding)
    try:
        root = read_json(raw)
    except (ValueError, RecursionError) as error:
        raise SyntaxError(f"it is no JSON: {error}") from error
    cells = root.get("cells") if isinstance(root, Mapping) else None
    if cells is None or not isinstance(cells.node, Items) or not isinstance(root, Mapping):
        raise SyntaxError("it is no notebook of format 4")
    parts: list[str] = []
    kept: list[str] = []
    taking: list[Cell] = []
    for cell in _code_cells(cells.node) if _is_python(root) else ():
        code = _as_python(cell.source, kept)
        if code is None:
            continue
        taking.append(cell)
        parts.append(f"# [fsdp-migrate: code of cell {cell.number}]\n{code}\n")
    return Notebook(path, data, "".join(parts), encoding, "\n", raw, tuple(taking), tuple(kept))


def code_bytes(data: bytes) -> bytes:
    """The code of a notebook for a search by pattern; empty where it cannot be read."""
    try:
        found = json.loads(data)
        cells = found["cells"]
        sources = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return b""
    return "\n".join("".join(source) for source in sources).encode(errors="replace")


def _characters(raw: str, strings: tuple[Span, ...]) -> Iterator[Span]:
    """Where each character of some JSON strings is written."""
    for string in strings:
        for found in _CHARACTER.finditer(raw, string.start + 1, string.end - 1):
            yield Span(found.start(), found.end())


def _is_python(root: Mapping) -> bool:
    metadata = root.value.get("metadata")
    if not isinstance(metadata, dict):
        return True
    languages = []
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        part = metadata.get(key)
        if isinstance(part, dict) and isinstance(part.get(name), str):
            languages.append(part[name].lower())
    return not languages or any("python" in language for language in languages)


def _code_cells(cells: Items) -> Iterator[Cell]:
    for number, node in enumerate(cells.items, start=1):
        if not isinstance(node, Mapping) or node.value.get("cell_type") != "code":
            continue
        source = node.get("source")
        if source is None:
            continue
        text, spans = _source(source.node)
        if text is not None:
            yield Cell(number, text, source.node.span, spans)


def _source(node: Node) -> tuple[str | None, tuple[Span, ...]]:
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return node.value, (node.span,)
    if isinstance(node, Items) and all(isinstance(item.value, str) for item in node.items):
        return "".join(str(item.value) for item in node.items), tuple(item.span for item in node.items)
    return None, ()


def _as_python(source: str, kept: list[str]) -> str | None:
    """A cell's code with placeholders for magics; None where it is another language or no Python.

    Raises:
        SyntaxError: it names FSDP and cannot be parsed.
    """
    if "\r" in source:
        return None
    if _parses(source):
        return source
    first = source.lstrip().split(None, 1)[:1]
    if first and first[0].startswith("%%") and not first[0].startswith(_PYTHON_CELL_MAGICS):
        return None
    before = len(kept)
    code = "\n".join(_lines_as_python(source, kept))
    if _parses(code):
        return code
    del kept[before:]
    if names_fsdp(source.encode(errors="replace")):
        raise SyntaxError("a cell that names FSDP cannot be parsed")
    return None


def _lines_as_python(source: str, kept: list[str]) -> Iterator[str]:
    continued = False
    for line in source.split("\n"):
        assigned = _ASSIGNED_MAGIC.match(line)
        if continued or _LINE_MAGIC.match(line):
            indent = line[: len(line) - len(line.lstrip(" \t"))] if not continued else ""
            yield f"{indent}pass  # [fsdp-migrate: line {len(kept)}]"
            kept.append(_CONTINUED + line if continued else line)
            continued = line.endswith("\\")
        elif assigned:
            yield f"{assigned.group(1)}{assigned.group(2)} = None  # [fsdp-migrate: line {len(kept)}]"
            kept.append(line)
            continued = line.endswith("\\")
        else:
            yield line


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _written(raw: str, cell: Cell, new: str) -> str:
    """A cell's new source as the JSON it was: one string, or a list of lines with the same indentation."""
    old = raw[cell.span.start : cell.span.end]
    ascii_only = old.isascii() and "\\u" in old
    if old[:1] == '"':
        return json.dumps(new, ensure_ascii=ascii_only)
    lines = [json.dumps(line, ensure_ascii=ascii_only) for line in re.findall(r"[^\n]*\n|[^\n]+", new)]
    if not lines:
        return "[]"
    opening = re.match(r"\[(\s*)", old)
    closing = re.search(r"(\s*)\]$", old)
    lead = opening.group(1) if opening else ""
    tail = closing.group(1) if closing else ""
    return f"[{lead}{(',' + (lead or ' ')).join(lines)}{tail}]"
