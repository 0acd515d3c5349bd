"""One word of a shell command: where it ends, and what the shell makes of it.

Words are read in runs of plain characters, quoted texts and expansions: a character at a time would take
most of the time that a repository of launch scripts costs.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_PLAIN = r"[^ \t\r\n;&|()<>'\"\\`$*?\[]+"
_RUN = re.compile(_PLAIN)
_PLAIN_WORD = re.compile(rf"{_PLAIN}(?=[ \t\r\n;&|()<>]|\\\r?\n|\Z)")
_WORD_END = re.compile(r"[ \t\r\n;&|()<>]|\\\r?\n|\Z")
_CLEAN_TEXT = re.compile(r'"([^"\\$`]*)"')
_TEXT_RUN = re.compile(r'[^"\\$]+')
_BRACKETS = {"{": ("}", re.compile(r"[{}]")), "(": (")", re.compile(r"[()]"))}


def read_word(text: str, start: int) -> tuple[int, str | None]:
    """The word that starts at a position.

    Returns:
        Its end, and what the shell makes of it; None where that is decided at run time.
    """
    plain = _PLAIN_WORD.match(text, start)
    if plain is not None:
        return plain.end(), plain.group()
    position = start
    parts: list[str] = []
    known = True
    while not _WORD_END.match(text, position):
        run = _RUN.match(text, position)
        if run is not None:
            position, piece = run.end(), run.group()
        else:
            position, said = _MARKS[text[position]](text, position)
            known = known and said is not None
            piece = said or ""
        parts.append(piece)
    return position, "".join(parts) if known else None


def _single_quoted(text: str, start: int) -> tuple[int, str | None]:
    end = _past(text, "'", start)
    return end, text[start + 1 : end - 1]


def _escaped(text: str, start: int) -> tuple[int, str | None]:
    return min(start + 2, len(text)), text[start + 1 : start + 2]


def _backquoted(text: str, start: int) -> tuple[int, str | None]:
    return _past(text, "`", start), None


def _expanded(text: str, start: int) -> tuple[int, str | None]:
    return _expansion(text, start), None


def _pattern(text: str, start: int) -> tuple[int, str | None]:
    return start + 1, None


def _double_quoted(text: str, start: int) -> tuple[int, str | None]:
    clean = _CLEAN_TEXT.match(text, start)
    if clean is not None:
        return clean.end(), clean.group(1)
    position = start + 1
    known = True
    parts: list[str] = []
    while position < len(text) and text[position] != '"':
        run = _TEXT_RUN.match(text, position)
        if run is not None:
            known = known and "`" not in run.group()
            parts.append(run.group())
            position = run.end()
        elif text[position] == "\\":
            parts.append(text[position + 1 : position + 2])
            position += 2
        else:
            known = False
            position = _expansion(text, position)
    end = min(position + 1, len(text))
    return end, "".join(parts) if known and end > start + 1 else None


_MARKS: dict[str, Callable[[str, int], tuple[int, str | None]]] = {
    "'": _single_quoted,
    '"': _double_quoted,
    "\\": _escaped,
    "`": _backquoted,
    "$": _expanded,
    "*": _pattern,
    "?": _pattern,
    "[": _pattern,
}


def _past(text: str, mark: str, start: int) -> int:
    """Just after the next such mark; the end of the text where there is none."""
    found = text.find(mark, start + 1)
    return len(text) if found < 0 else found + 1


def _expansion(text: str, start: int) -> int:
    """The end of `$NAME`, `${...}` or `$(...)`; of the first only that of the dollar sign."""
    opening = text[start + 1 : start + 2]
    if opening not in _BRACKETS:
        return start + 1
    closing, brackets = _BRACKETS[opening]
    depth = 0
    for bracket in brackets.finditer(text, start + 1):
        depth += -1 if bracket.group() == closing else 1
        if depth == 0:
            return bracket.end()
    return len(text)
