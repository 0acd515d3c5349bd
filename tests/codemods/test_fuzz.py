"""No input stops the rewriter, and nothing it writes fails to parse: mutated cases, text of FSDP1's words.

FM903 (the result would not parse, so the file was left alone) is a failure here: the net under the rules
must not be needed.
"""

from __future__ import annotations

import ast
import random
import tempfile
from pathlib import Path

from case import CASES
from hypothesis import given, settings
from hypothesis import strategies as st

from codemods.model import Options, Rewrite
from codemods.plan import plan_rewrite
from codemods.sources import find_files

BEFORE = sorted(CASES.glob("*/*/*/before"))
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


def check(folder: Path) -> Rewrite:
    """Rewrite a folder in memory; every result parses and no net was needed."""
    done = plan_rewrite(folder, find_files(folder, [folder]), Options(unsafe_fixes=True))
    for change in done.changes:
        ast.parse(change.after, change.path)
    failed = [r.finding.message for r in done.reported if r.finding.code == "FM903"]
    assert failed == [], {path.name: path.read_text() for path in folder.rglob("*.py")}
    return done


def mutated(text: str, chance: random.Random, others: list[str]) -> str:
    """Some lines dropped, doubled, joined, indented, or replaced by lines of other cases or by words."""
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


def parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def mutate_and_check(seed: int) -> bool:
    """One mutated case; whether it still parsed, so that the rules were asked."""
    chance = random.Random(seed)
    case = chance.choice(BEFORE)
    texts = {path.relative_to(case).as_posix(): path.read_text() for path in sorted(case.rglob("*.py"))}
    others = [path.read_text() for path in sorted(chance.choice(BEFORE).rglob("*.py"))]
    name = chance.choice(sorted(texts))
    for _ in range(20):  # most mutations of a syntax are no syntax; those teach little
        new = mutated(texts[name], chance, others)
        if parses(new):
            break
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for path, text in {**texts, name: new}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        done = check(folder)
        assert set(done.skipped) <= {name}
        for change in done.changes:
            (folder / change.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / change.path).write_bytes(change.after)
        check(folder)
    return parses(new)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(min_value=0, max_value=2**32))
def test_mutated_cases_are_rewritten_or_reported(seed: int) -> None:
    mutate_and_check(seed)


LINES = st.tuples(st.integers(0, 3), st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)).map(
    lambda line: "    " * line[0] + " ".join(line[1])
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(LINES, max_size=12), st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_lines_of_these_words_are_rewritten_or_reported(lines: list[str], newline: str) -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nmodel = FSDP(make())\n"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "a.py").write_bytes((head + "\n".join(lines) + "\n").replace("\n", newline).encode())
        check(folder)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.binary(max_size=300))
def test_any_bytes_are_reported(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "a.py").write_bytes(b"import torch.distributed.fsdp\n" + data)
        (folder / "b.py").write_bytes(data + b"\nFullyShardedDataParallel")
        check(folder)
