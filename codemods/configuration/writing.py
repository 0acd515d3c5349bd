"""How new words are written into a command, and old ones taken out, wherever the command stands."""

from __future__ import annotations

import json
import re
import shlex

from codemods.configuration.shell import Command, Option, Style
from codemods.model import Span

_PLAIN = re.compile(r"[\w@%+=:,./-]+")


class CannotWrite(Exception):
    """The words cannot be written where the command stands; the message says why."""


def written(command: Command, words: list[str]) -> str:
    """Words as they have to be written within a command.

    Raises:
        CannotWrite: no way of quoting would give the program these words.
    """
    match command.style:
        case Style.ITEMS:
            return ", ".join(_item(word, command) for word in words)
        case Style.SHELL:
            if command.is_python:
                return _escaped(" ".join(_quoted(word, "") for word in words), command.outer)
            return " ".join(_quoted(word, command.outer) for word in words)
        case Style.SPLIT:
            return _inside(" ".join(_compact(word) for word in words), command.outer)
    raise CannotWrite("this text holds a command, and how it is run was not found")


def _item(word: str, command: Command) -> str:
    """A word as one string of a list, in the list's own kind of quotation marks where that reads well."""
    if not command.is_python:
        return json.dumps(word)
    if command.outer in word or "\\" in word:
        return repr(word)
    return f"{command.outer}{word}{command.outer}"


def _escaped(text: str, quote: str) -> str:
    """A text within a string of Python."""
    return text.replace("\\", "\\\\").replace(quote, f"\\{quote}")


def _quoted(word: str, outer: str) -> str:
    """A word for a shell, within the quotation marks of an outer one."""
    if _PLAIN.fullmatch(word):
        return word
    if outer == "'":
        return '"' + re.sub(r'(["\\$`])', r"\\\1", word) + '"'
    return _inside(shlex.quote(word), outer)


def _inside(text: str, outer: str) -> str:
    if outer == '"':
        return re.sub(r'(["\\$`])', r"\\\1", text)
    if outer == "'" and "'" in text:
        raise CannotWrite("a quotation mark cannot stand within this text")
    return text


def _compact(word: str) -> str:
    """A word without blanks: JSON is written tight."""
    if word.startswith("{"):
        word = json.dumps(json.loads(word), separators=(",", ":"))
    if re.search(r"\s|[*?]", word):
        raise CannotWrite("the text is split at blanks when it runs, and a value of FSDP2's holds one")
    return word


def removal(text: str, command: Command, option: Option) -> Span:
    """The text that goes with an option and its value."""
    end = option.values[0].span.end if option.values else option.span.end
    if command.style is Style.ITEMS:
        return _items_removal(command, option.span.start, end)
    start = text.rfind("\n", 0, option.span.start) + 1
    newline = text.find("\n", end)
    line_end = len(text) if newline < 0 else newline + 1
    rest = text[end:line_end].strip()
    if not text[start : option.span.start].strip():
        if rest == "\\":
            return Span(start, line_end)
        if not rest:  # the last line: the line before must not continue
            before = text[:start].rstrip()
            return Span(len(before[:-1].rstrip()), end) if before.endswith("\\") else Span(start, line_end)
    start = option.span.start
    if text[end : end + 1] not in (" ", "\t") and start > command.span.start:
        while text[start - 1] in " \t":  # the last one takes the blank before it along
            start -= 1
        return Span(start, end)
    while text[end : end + 1] in (" ", "\t"):
        end += 1
    return Span(option.span.start, end)


def _items_removal(command: Command, start: int, end: int) -> Span:
    following = next((word.span.start for word in command.words if word.span.start >= end), None)
    if following is not None:
        return Span(start, following)
    before = [word.span.end for word in command.words if word.span.end <= start]
    return Span(before[-1] if before else start, end)
