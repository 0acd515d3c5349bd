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

    def locate(self, line: int) -> tuple[int, int, int]:
        """Where a line of the module stands: the notebook file's line, the cell, and the line within the
        cell, from 1."""
        current, start = (self.cells[0], 1) if self.cells else (None, 1)
        numbers = {cell.number: cell for cell in self.cells}
        for mark in _CELL.finditer(self.text):
            at = self.text.count("\n", 0, mark.start()) + 1
            if at > line:
                break
            current, start = numbers[int(mark.group(1))], at
        if current is None:
            return 1, 1, 1
        inside = max(line - start, 1)
        spans = current.line_spans or (current.span,)
        span = spans[min(inside, len(spans)) - 1]
        return self.raw.count("\n", 0, span.start) + 1, current.number, inside


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
