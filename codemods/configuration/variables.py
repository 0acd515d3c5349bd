"""Variables of a script whose value is certain where a settings file is named: `CFG=fsdp.json`, then
`--fsdp_config $CFG`. Pure.

Certain is a name that occurs once besides its uses: set to a text by a command of its own, outside of every
block, above the use, with nothing between that could read other commands. Whoever calls the script cannot
change it then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from codemods.configuration.nested import all_commands
from codemods.configuration.shell import Command, Word, commands, heredocs
from codemods.configuration.tree import ConfigFile
from codemods.model import Span

_FILE_OPTIONS = ("fsdp_config", "config_file")
_IS_FILE = re.compile(r"\.(?:json|ya?ml)$")
_USE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_SET = re.compile(r"([A-Za-z_]\w*)=")
_USED = re.compile(r"\A[ \t]*#|\$\{?\Z")
"""What stands before a name in its line where it is not set: a comment's mark, or that of its use."""
_PLAIN = re.compile(r"[\w./@%+,:=-]*")
_OPENING = frozenset({"if", "case", "for", "while", "until", "select", "{"})
_CLOSING = frozenset({"fi", "esac", "done", "}"})
_READING = frozenset({"source", ".", "eval"})
_DECLARING = frozenset({"export", "readonly"})
_DEEPEST = 8


def known_commands(file: ConfigFile) -> tuple[Command, ...]:
    """The commands of a script or image, names of settings files read through variables where certain."""
    found = all_commands(file.text, is_docker=file.kind == "docker")
    if file.kind != "shell" or "make" in PurePosixPath(file.path).name.lower() or file.path.endswith(".mk"):
        return found  # there, variables are another program's
    return tuple(_read(file.text, command) for command in found)


def _read(text: str, command: Command) -> Command:
    """A command with what it names settings files by."""
    values = [o.values[0] for o in command.options() if o.name in _FILE_OPTIONS and o.values and not o.joined]
    unknown = {word for word in values if word.text is None}
    if not unknown or command.outer == "'" or _within_single_quotes(text, command):
        return command
    within, start = _script_around(text, command.span.start)
    words = []
    for word in command.words:
        said = _value(within, word.raw, word.span.start - start, _DEEPEST) if word in unknown else None
        is_file = said is not None and _IS_FILE.search(said)
        words.append(replace(word, text=said) if is_file else word)
    return replace(command, words=tuple(words))


def _within_single_quotes(text: str, command: Command) -> bool:
    """Whether a command stands in a quoted text that another one is given as it is written."""
    around = (w for c in commands(text) for w in c.words if _holds(w.span, command.span) and w.raw)
    return any(word.raw.startswith("'") and word.span != command.span for word in around)


def _holds(outer: Span, inner: Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _script_around(text: str, position: int) -> tuple[str, int]:
    """The here-document that a position stands in, or all of the script; and where that begins."""
    for document in heredocs(text):
        if document.span.start <= position < document.span.end:
            return text[document.span.start : document.span.end], document.span.start
    return text, 0


def _value(text: str, raw: str, position: int, depth: int) -> str | None:
    """What a word of a script says; None where that is not certain.

    Args:
        position: where it stands; only what is set above counts.
    """
    inner = raw[1:-1] if len(raw) > 1 and raw[0] == raw[-1] == '"' else raw
    parts: list[str] = []
    end = 0
    for use in _USE.finditer(inner):
        said = _set_above(text, use.group(1) or use.group(2), position, depth - 1) if depth else None
        if said is None:
            return None
        parts += [inner[end : use.start()], said]
        end = use.end()
    plain = [*parts[::2], inner[end:]]
    whole = "".join([*parts, inner[end:]])
    return None if not all(map(_PLAIN.fullmatch, plain)) or re.search(r"[\s*?\[]", whole) else whole


def _set_above(text: str, name: str, position: int, depth: int) -> str | None:
    """The one value that a variable has."""
    named = re.finditer(rf"\b{name}\b", text)
    others = [m for m in named if not _USED.search(text[text.rfind("\n", 0, m.start()) + 1 : m.start()])]
    told = re.search(rf"\$\{{{name}[^}}]", text)
    if len(others) != 1 or told or not name.isidentifier():
        return None
    found = next((w for w in _settings(text, position) if w.span.start == others[0].start()), None)
    if found is None:
        return None
    raw = found.raw[len(name) + 1 :]
    if found.text is not None and "$" not in raw:
        return found.text[len(name) + 1 :]
    return _value(text, raw, found.span.start, depth)


def _settings(text: str, position: int) -> Iterator[Word]:
    """`NAME=value` commands outside of every block, above a position, in whose way nothing else is read."""
    depth = 0
    found: list[Word] = []
    for command in commands(text):
        if command.span.start >= position:
            break
        first, words = command.words[0].raw, command.words
        depth += first in _OPENING
        depth -= first in _CLOSING
        declared = words[1:] if first in _DECLARING else words
        if first in _READING or (first in _DECLARING and not all(_SET.match(w.raw) for w in declared)):
            found = []
        is_alone = len(declared) == 1 and _SET.match(declared[0].raw) is not None
        if is_alone and not depth and _is_unconditional(text, command.span.start):
            found.append(declared[0])
    yield from found


def _is_unconditional(text: str, position: int) -> bool:
    """Whether no `&&`, `||`, `|` or bracket stands before a command."""
    before = text[:position].rstrip(" \t")
    return not before or (before[-1] in "\n;" and not before.rstrip("\n; \t").endswith(("&", "|", "(", "\\")))
