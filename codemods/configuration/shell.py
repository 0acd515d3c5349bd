"""Shell scripts as commands made of words with places; only quoting, comments and line ends are understood.

What a word says is known where it holds no expansion. Bash arrays (`ARGS=( ... )`) count as one command,
because that is how long argument lists are kept.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import lru_cache

from codemods.configuration.shell_words import read_word
from codemods.model import Span

_PASSED = re.compile(r"(?:[ \t]|\\\r?\n)+(?:#[^\n]*)?|#[^\n]*")
"""Blanks, and comments."""
_ARRAY = re.compile(r"\w+\+?=")
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)(=?)")
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")


@dataclass(frozen=True, slots=True)
class Word:
    """One word.

    Attributes:
        text: what the shell makes of it; None where that is decided at run time (`$X`, `$(...)`, a pattern).
    """

    span: Span
    text: str | None
    raw: str


@dataclass(frozen=True, slots=True)
class Option:
    """`--name value`, `--name=value` or `--name` of a command.

    Attributes:
        name: with `_` where `-` is written: the launchers take both.
        span: from the option to the end of its value.
        values: the words after it that are no options; the value after `=` comes first.
        joined: written with `=`.
    """

    name: str
    span: Span
    values: tuple[Word, ...]
    joined: bool


class Style(enum.Enum):
    """How the words of a command are told apart when it runs."""

    SHELL = enum.auto()
    """By a shell, which takes quotes off."""
    SPLIT = enum.auto()
    """By blanks alone: the value of a variable used without quotes."""
    ITEMS = enum.auto()
    """Each is one string of a list."""
    UNKNOWN = enum.auto()
    """Nobody knows: a text whose use was not found."""


@dataclass(frozen=True, slots=True)
class Command:
    """The words of one command or array.

    Attributes:
        outer: the quotation mark around all of it, where it stands within a quoted text.
        is_python: that text is one of Python's.
    """

    words: tuple[Word, ...]
    style: Style = Style.SHELL
    outer: str = ""
    is_python: bool = False

    @property
    def span(self) -> Span:
        return Span(self.words[0].span.start, self.words[-1].span.end)

    def options(self) -> list[Option]:
        """Every `--option` with the words that follow it."""
        found: list[Option] = []
        for position, word in enumerate(self.words):
            match = _OPTION.match(word.raw)
            if match is None:
                continue
            values: list[Word] = []
            if match.group(2):
                start = word.span.start + match.end()
                text = word.text[match.end() :] if word.text is not None else None
                values.append(Word(Span(start, word.span.end), text, word.raw[match.end() :]))
            else:
                for following in self.words[position + 1 :]:
                    if _OPTION.match(following.raw):
                        break
                    values.append(following)
            end = values[-1].span.end if values else word.span.end
            name = match.group(1).replace("-", "_")
            found.append(Option(name, Span(word.span.start, end), tuple(values), bool(match[2])))
        return found


@dataclass(frozen=True, slots=True)
class Heredoc:
    """Lines that a script gives to a command.

    Attributes:
        reader: the words of that command.
    """

    span: Span
    reader: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """A script as read once: its commands in order, and its here-documents."""

    commands: tuple[Command, ...]
    heredocs: tuple[Heredoc, ...]


def commands(text: str) -> tuple[Command, ...]:
    """The commands of a script, in order; not those within quoted texts and here-documents."""
    return read_script(text).commands


def heredocs(text: str) -> tuple[Heredoc, ...]:
    """The here-documents of a script."""
    return read_script(text).heredocs


@lru_cache(maxsize=32)
def read_script(text: str) -> Script:
    """Commands and here-documents; a script is asked about several times in a row, and read once."""
    scanner = _Scanner(text)
    scanner.run()
    return Script(tuple(scanner.found), tuple(scanner.heredocs))


class _Scanner:
    """One pass over the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.words: list[Word] = []
        self.found: list[Command] = []
        self.heredocs: list[Heredoc] = []
        self.in_array = False

    def run(self) -> None:
        while self.position < len(self.text):
            self._step()
        self._end()

    def _end(self) -> None:
        if self.words:
            self.found.append(Command(tuple(self.words)))
            self.words = []

    def _heredoc(self, opening: re.Match[str]) -> None:
        """The rest of the line belongs to the command; the lines to the closing word are its input."""
        body = self.text.find("\n", opening.end())
        body = len(self.text) if body < 0 else body + 1
        closing = re.compile(rf"^[ \t]*{re.escape(opening.group(2))}[ \t]*\r?$", re.MULTILINE)
        end = closing.search(self.text, body)
        rest = commands(self.text[opening.end() : body])
        reads = [word.raw for word in self.words] + [word.raw for c in rest for word in c.words]
        self.heredocs.append(Heredoc(Span(body, end.start() if end else len(self.text)), tuple(reads)))
        self.position = end.end() if end else len(self.text)
        self._end()

    def _step(self) -> None:
        text, position = self.text, self.position
        passed = _PASSED.match(text, position)
        if passed:
            self.position = passed.end()
            return
        character = text[position]
        if character in "\r\n":
            self.position += 1
            if not self.in_array:
                self._end()
        elif character in ";&|()":
            if character == ")":
                self.in_array = False
            self.position += 1
            self._end()
        elif character not in "<>":
            self._word()
        elif heredoc := _HEREDOC.match(text, position):
            self._heredoc(heredoc)
        else:
            self.position += 1

    def _word(self) -> None:
        start = self.position
        self.position, said = read_word(self.text, start)
        raw = self.text[start : self.position]
        if raw[-1] == "=" and self.text.startswith("(", self.position) and _ARRAY.fullmatch(raw):
            self._end()
            self.position += 1
            self.in_array = True
        else:
            self.words.append(Word(Span(start, self.position), said, raw))
