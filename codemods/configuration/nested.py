"""Commands within commands: quoted texts that are run later, here-documents that are scripts, Docker's lists.

`CMD="torchrun train.py --fsdp full_shard"` is run by `eval "$CMD"`, which reads quotes again, or by a bare
`$CMD`, which is split at blanks and reads none: what may be written there depends on that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from codemods.configuration.shell import Command, Style, Word, commands, heredocs
from codemods.model import Span

_FLAGS = re.compile(r"(?:^|\s)--?fsdp")
_RUNS_TEXT = frozenset({"eval", "ssh", "tmux", "screen", "xargs"})
_SHELL_READS = re.compile(
    r"(?:(?:^|/)(?:bash|sh|zsh|sbatch|qsub|ssh|srun)|\.(?:sh|bash|sbatch|slurm)[\"']?)$"
)
_LAUNCHER = re.compile(r"\b(?:torchrun|accelerate|python[\d.]*|deepspeed|srun)\b")
_SHELL_STARTS = re.compile(r"\s*#!.*\b(?:bash|sh|zsh)\b")
_INSTRUCTION = re.compile(
    r"^[ \t]*(?:CMD|ENTRYPOINT|RUN|SHELL)[ \t]+(\[(?:[^\]\\\n]|\\\n|\\.)*\])", re.MULTILINE
)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def may_hold_flags(text: str, *, is_docker: bool = False) -> bool:
    """Whether a script can have an option `--fsdp...`: most that say FSDP name another program's settings."""
    return "-fsdp" in text or (is_docker and "\\u" in text)


@lru_cache(maxsize=32)
def all_commands(text: str, *, is_docker: bool = False) -> tuple[Command, ...]:
    """The commands of a script, with those that stand within others after the ones around them."""
    lists = list(_docker_lists(text)) if is_docker else []
    spans = [command.span for command in lists]
    found: list[Command] = []
    for command in commands(text):
        if any(span.start <= command.span.start <= span.end for span in spans):
            continue
        found.append(command)
        found += _quoted(text, command)
    for document in heredocs(text):
        inner = text[document.span.start : document.span.end]
        if any(map(_SHELL_READS.search, document.reader)) or _SHELL_STARTS.match(inner):
            found += [_moved(c, document.span.start) for c in all_commands(inner)]
    return (*found, *lists)


def _quoted(text: str, command: Command) -> Iterator[Command]:
    """The quoted texts of a command that hold FSDP flags themselves."""
    shows = command.words[0].raw in ("echo", "printf")
    for position, word in enumerate(command.words):
        for start, end in _quotations(word.raw) if "-fsdp" in word.raw else ():
            inner = word.raw[start + 1 : end]
            if not _FLAGS.search(inner) or not re.search(r"\s", inner.strip()):
                continue
            offset, quote = word.span.start + start + 1, word.raw[start]
            style = _style(text, command, position, word.raw[:start])
            is_value = word.raw[:start].rstrip("+").endswith("=")
            if style is Style.UNKNOWN and not is_value and (shows or not _LAUNCHER.search(inner)):
                continue  # a message
            if re.search(r"\\(?!\r?\n)", inner):
                style = Style.UNKNOWN
            if style is Style.SHELL:
                yield from (replace(_moved(c, offset), outer=quote) for c in commands(inner))
            else:
                yield Command(tuple(_split(inner, offset)), style, quote)


def _quotations(raw: str) -> Iterator[tuple[int, int]]:
    """Where a word's quoted pieces begin and end."""
    position = 0
    while position < len(raw):
        mark = raw[position]
        if mark == "\\":
            position += 2
            continue
        if mark in "\"'":
            end = position + 1
            while end < len(raw) and raw[end] != mark:
                end += 2 if mark == '"' and raw[end] == "\\" else 1
            yield position, min(end, len(raw))
            position = end
        position += 1


def _split(text: str, offset: int) -> Iterator[Word]:
    for match in re.finditer(r"(?:\\\r?\n|\s)*((?:(?!\\\r?\n)\S)+)", text):
        raw = match.group(1)
        is_plain = not re.search(r"[$`\"'*?\\]", raw)
        start = offset + match.start(1)
        yield Word(Span(start, start + len(raw)), raw if is_plain else None, raw)


def _style(text: str, command: Command, position: int, before: str) -> Style:
    """How a quoted text of a command is read when it runs."""
    if named := re.fullmatch(r"(\w+)\+?=", before):
        return _style_of_variable(text, named.group(1))
    words = [word.raw for word in command.words[: position + 1]]
    runs = any(w in _RUNS_TEXT for w in words) or before in ("--wrap=", "--command=")
    if runs or (position and words[position - 1] in ("-c", "-lc", "-ic", "--wrap", "--command")):
        return Style.SHELL
    return Style.UNKNOWN


def _style_of_variable(text: str, name: str) -> Style:
    use = rf"\$(?:{name}\b|\{{{name}\}})"
    again = re.search(rf"(?:\beval\b|\s-l?c\b|--wrap[= ])[^\n;|&]*{use}", text)
    plain = [
        match
        for match in re.finditer(use, text)
        if not re.search(
            r"(?:\beval\b|\becho\b|\bprintf\b|\s-l?c\b|--wrap[= ])[^\n;|&]*$", text[: match.start()]
        )
    ]
    if again and not plain:
        return Style.SHELL
    is_bare = bool(plain) and all(text[m.start() - 1 : m.start()] != '"' for m in plain)
    return Style.SPLIT if is_bare and not again else Style.UNKNOWN


def _moved(command: Command, offset: int) -> Command:
    words = [Word(Span(w.span.start + offset, w.span.end + offset), w.text, w.raw) for w in command.words]
    return replace(command, words=tuple(words))


def _docker_lists(text: str) -> Iterator[Command]:
    """`CMD ["torchrun", "train.py", "--fsdp", "full_shard"]`."""
    for match in _INSTRUCTION.finditer(text):
        words = []
        for string in _STRING.finditer(text, match.start(1), match.end(1)):
            raw = string.group()
            try:
                said = json.loads(raw)
            except ValueError:
                said = None
            words.append(Word(Span(string.start(), string.end()), said, said if said is not None else raw))
        if words:
            yield Command(tuple(words), Style.ITEMS, '"')
