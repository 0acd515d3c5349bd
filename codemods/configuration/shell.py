"""Shell scripts as commands made of words with places; only quoting, comments and line ends are understood.

What a word says is known where it holds no expansion. Bash arrays (`ARGS=( ... )`) count as one command,
because that is how long argument lists are kept.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from codemods.model import Span

_BLANK = re.compile(r"(?:[ \t]|\\\r?\n)+")
_COMMENT = re.compile(r"#[^\n]*")
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
            match = re.match(r"--?([A-Za-z][\w.-]*)(=?)", word.raw)
            if match is None:
                continue
            values: list[Word] = []
            if match.group(2):
                start = word.span.start + match.end()
                text = word.text[match.end() :] if word.text is not None else None
                values.append(Word(Span(start, word.span.end), text, word.raw[match.end() :]))
            else:
                for following in self.words[position + 1 :]:
                    if re.match(r"--?[A-Za-z]", following.raw):
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


def commands(text: str) -> list[Command]:
    """The commands of a script, in order; not those within quoted texts and here-documents."""
    return _Scanner(text).run()


def heredocs(text: str) -> list[Heredoc]:
    """The here-documents of a script."""
    scanner = _Scanner(text)
    scanner.run()
    return scanner.heredocs


class _Scanner:
    """One pass over the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.words: list[Word] = []
        self.found: list[Command] = []
        self.heredocs: list[Heredoc] = []
        self.in_array = False

    def run(self) -> list[Command]:
        while self.position < len(self.text):
            self._step()
        self._end()
        return self.found

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
        blank = _BLANK.match(text, position)
        if blank:
            self.position = blank.end()
            return
        character = text[position]
        comment = _COMMENT.match(text, position)
        if comment:
            self.position = comment.end()
        elif character in "\r\n":
            self.position += 1
            if not self.in_array:
                self._end()
        elif character == ")" and self.in_array:
            self.in_array = False
            self.position += 1
            self._end()
        elif character in ";&|()":
            self.position += 1
            self._end()
        elif heredoc := _HEREDOC.match(text, position):
            self._heredoc(heredoc)
        elif character in "<>":
            self.position += 1
        else:
            self._word()

    def _word(self) -> None:
        start = self.position
        parts: list[str] = []
        known = True
        while self.position < len(self.text):
            character = self.text[self.position]
            if character in " \t\r\n;&|()<>" or self.text.startswith(("\\\n", "\\\r\n"), self.position):
                break
            piece = self._piece(character)
            known = known and piece is not None
            parts.append(piece or "")
        raw = self.text[start : self.position]
        self.words.append(Word(Span(start, self.position), "".join(parts) if known else None, raw))
        if re.fullmatch(r"\w+\+?=", raw) and self.text[self.position : self.position + 1] == "(":
            self.words.pop()
            self._end()
            self.position += 1
            self.in_array = True

    def _piece(self, character: str) -> str | None:
        """One quoted or plain piece of a word; None where it is decided at run time."""
        text, start = self.text, self.position
        if character == "'":
            end = text.find("'", start + 1)
            self.position = len(text) if end < 0 else end + 1
            return text[start + 1 : self.position - 1]
        if character == '"':
            return self._double_quoted()
        if character == "\\":
            self.position += 2
            return text[start + 1 : start + 2]
        if character == "`":
            end = text.find("`", start + 1)
            self.position = len(text) if end < 0 else end + 1
            return None
        if character == "$":
            self._expansion()
            return None
        self.position += 1
        return None if character in "*?[" else character

    def _double_quoted(self) -> str | None:
        start = self.position
        self.position += 1
        known = True
        parts: list[str] = []
        while self.position < len(self.text) and self.text[self.position] != '"':
            character = self.text[self.position]
            if character == "\\":
                parts.append(self.text[self.position + 1 : self.position + 2])
                self.position += 2
            elif character == "$":
                known = False
                self._expansion()
            else:
                known = known and character != "`"
                parts.append(character)
                self.position += 1
        self.position = min(self.position + 1, len(self.text))
        return "".join(parts) if known and self.position > start + 1 else None

    def _expansion(self) -> None:
        """`$NAME`, `${...}` or `$(...)`."""
        opening = self.text[self.position + 1 : self.position + 2]
        closing = {"{": "}", "(": ")"}.get(opening)
        if closing is None:
            self.position += 1
            return
        depth = 0
        while self.position < len(self.text):
            character = self.text[self.position]
            self.position += 1
            if character == opening:
                depth += 1
            elif character == closing:
                depth -= 1
                if depth == 0:
                    return
