"""Ways in which a source file comes to be broken or odd: by lines, by tokens, by bytes. Pure, seeded."""

from __future__ import annotations

import ast
import io
import random
import tokenize
from collections.abc import Callable, Sequence

WORDS = (
    "model.state_dict()",
    "model.no_sync()",
    "FSDP(model)",
    "FSDP",
    "wrap(model)",
    "with model.no_sync():",
    "return",
    "pass",
    "else:",
    "try:",
    "finally:",
    "lambda m: m",
    "model.module",
    "model.clip_grad_norm_(1.0)",
    "FSDP.optim_state_dict(model, optimizer)",
    "FSDP.summon_full_params(model)",
    "*args",
    "**kwargs",
    "(",
    ")",
    "# comment",
    "'''",
    "\\",
    "\f",
    "\t",
    ";",
    "x = 1",
    "await model()",
    "yield",
    "async with model:",
    "é",
    "@model",
    "model: FSDP = None",
    "isinstance(model, FSDP)",
    "del model",
    "global model",
    "match model:",
    "case FSDP():",
)


def by_lines(text: str, chance: random.Random, others: Sequence[str]) -> str:
    """Some lines dropped, doubled, joined, indented, or replaced by lines of other files or by words."""
    lines = text.split("\n")
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(lines))
        match chance.randrange(9):
            case 0:
                lines[at : at + chance.randint(1, 3)] = []
            case 1:
                lines.insert(chance.randrange(len(lines) + 1), lines[at])
            case 2:
                lines[at] = " " * chance.choice((0, 2, 4, 8)) + lines[at].lstrip()
            case 3:
                lines[at : at + 2] = ["; ".join(part.strip() for part in lines[at : at + 2])]
            case 4:
                lines[at] = lines[at] + "  # a comment"
            case 5:
                indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
                lines.insert(at, indent + chance.choice(WORDS))
            case 6:
                other = chance.choice(others).split("\n")
                start = chance.randrange(len(other))
                lines[at:at] = other[start : start + chance.randint(1, 6)]
            case 7:
                start, length = chance.randrange(len(lines[at]) + 1), chance.randint(0, 12)
                lines[at] = lines[at][:start] + chance.choice(WORDS) + lines[at][start + length :]
            case 8:
                lines[at] = (
                    lines[at].replace("(", "(\n            ", 1).replace(", ", ",  # why\n            ", 1)
                )
        if not lines:
            lines = [""]
    return "\n".join(lines)


def by_tokens(text: str, chance: random.Random, others: Sequence[str]) -> str:
    """Some tokens deleted, doubled, swapped, or replaced by tokens from elsewhere in this file or another."""
    spans = token_spans(text)
    if not spans:
        return by_lines(text, chance, others)
    edits: list[tuple[int, int, str]] = []
    for _ in range(chance.randint(1, 3)):
        # Half of them near a name that the rules look at: elsewhere little is asked.
        start, end = _near_fsdp(text, spans, chance) if chance.random() < 0.5 else chance.choice(spans)
        match chance.randrange(5):
            case 0:
                edits.append((start, end, ""))
            case 1:
                edits.append((start, end, f"{text[start:end]} {text[start:end]}"))
            case 2:
                other = chance.choice(spans)
                edits += [
                    (start, end, text[other[0] : other[1]]),
                    (*other, text[start:end]),
                ]
            case 3:
                other = chance.choice(spans)
                edits.append((start, end, text[other[0] : other[1]]))
            case 4:
                donor = chance.choice(others)
                found = token_spans(donor)
                word = chance.choice(found) if found else (0, 0)
                edits.append((start, end, donor[word[0] : word[1]]))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _near_fsdp(text: str, spans: Sequence[tuple[int, int]], chance: random.Random) -> tuple[int, int]:
    marks = [i for i, (start, end) in enumerate(spans) if "fsdp" in text[start:end].lower()]
    if not marks:
        return chance.choice(spans)
    at = chance.choice(marks) + chance.randint(-6, 12)
    return spans[min(max(at, 0), len(spans) - 1)]


def token_spans(text: str) -> list[tuple[int, int]]:
    """[start, end) of every token with text, in characters; of as many as can be read."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    spans: list[tuple[int, int]] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.string.strip() and token.end[0] < len(starts) + 1:
                start = starts[token.start[0] - 1] + token.start[1]
                end = starts[token.end[0] - 1] + token.end[1]
                if text[start:end] == token.string:
                    spans.append((start, end))
    except (tokenize.TokenError, SyntaxError):
        pass
    return spans


def by_bytes(data: bytes, chance: random.Random) -> bytes:
    """Cut off, some bytes changed, a stretch lost or doubled, line endings changed."""
    at = chance.randrange(len(data) + 1)
    match chance.randrange(7):
        case 0:
            return data[:at]
        case 1:
            return data[at:]
        case 2:
            changed = bytearray(data)
            for _ in range(min(len(data), chance.randint(1, 8))):
                changed[chance.randrange(len(data))] = chance.randrange(256)
            return bytes(changed)
        case 3:
            return data[:at] + data[at + chance.randint(1, 400) :]
        case 4:
            return data[:at] + data[max(0, at - chance.randint(1, 400)) :]
        case 5:
            return data.replace(b"\n", chance.choice((b"\r\n", b"\r", b"\n\f\n", b" \\\n")))
        case _:
            return data[:at] + chance.choice((b"\0", b"\xff", b"\xef\xbb\xbf", b"\x0c", b"\r")) + data[at:]


def parses(source: str | bytes) -> bool:
    """Whether Python can parse it."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def compiles(source: bytes) -> bool:
    """Whether Python takes it: `def f(a, a)` and a `nonlocal` of nothing can be parsed, and are refused."""
    try:
        compile(source, "<mutated>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def mutated(data: bytes, chance: random.Random, others: Sequence[str], tries: int = 12) -> bytes:
    """One mutation of a file; by lines or tokens one that still parses, if `tries` attempts find one."""
    kind: Callable[[str, random.Random, Sequence[str]], str]
    match chance.randrange(10):
        case 0 | 1:
            return by_bytes(data, chance)
        case 2 | 3 | 4:
            kind = by_lines
        case _:
            kind = by_tokens
    text = data.decode("utf-8", errors="surrogateescape")
    new = data
    for _ in range(tries):
        new = kind(text, chance, others).encode("utf-8", errors="surrogateescape")
        if parses(new):
            break
    return new
