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
from mutations import WORDS, compiles, mutated, parses

from codemods.model import Options, Rewrite
from codemods.plan import plan_rewrite
from codemods.sources import find_files

BEFORE = [path for path in sorted(CASES.glob("*/*/*/before")) if any(path.rglob("*.py"))]


def check(folder: Path) -> Rewrite:
    """Rewrite a folder in memory; every result parses and no net was needed."""
    done = plan_rewrite(folder, find_files(folder, [folder]), Options(unsafe_fixes=True))
    for change in done.changes:
        ast.parse(change.after, change.path)
    left = [r.finding for r in done.reported if r.finding.code == "FM903"]
    failed = [f.message for f in left if compiles((folder / f.place.path).read_bytes())]
    assert failed == [], {path.name: path.read_text() for path in folder.rglob("*.py")}
    return done


def mutate_and_check(seed: int) -> bool:
    """One mutated case; whether it still parsed, so that the rules were asked."""
    chance = random.Random(seed)
    case = chance.choice(BEFORE)
    texts = {path.relative_to(case).as_posix(): path.read_text() for path in sorted(case.rglob("*.py"))}
    others = [path.read_text() for path in sorted(chance.choice(BEFORE).rglob("*.py"))]
    name = chance.choice(sorted(texts))
    new = mutated(texts[name].encode(), chance, others, tries=20)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(new if path == name else text.encode())
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
