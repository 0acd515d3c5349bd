"""The net under the rules: a result that loses a name's definition is never written."""

from __future__ import annotations

import ast
import contextlib
from pathlib import Path

import pytest
from small import write

from codemods.analysis.module import Module
from codemods.editing import changes
from codemods.editing.new_statements import new_statements
from codemods.editing.undefined import check_concrete, names_left_undefined
from codemods.model import Options
from codemods.plan import plan_rewrite
from codemods.sources import find_files


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ("import torch\ntorch.ones(1)\n", "torch.ones(1)\n", ["torch"]),
        ("x = 1\n", "x = 1\ndef f():\n    return nn.Linear, x\n", ["nn"]),
        ("", "class A:\n    k = 1\n    def g(self):\n        return k\n", ["k"]),
        ("", "x: torch.Tensor = dist.x.y\n", ["dist", "torch"]),
        ("print(name)\n", "print(name, name)\n", []),  # there before, so no loss
        ("", "def f(a):\n    match a:\n        case [b, *c]:\n            return b, c\n", []),
        ("", "def f(q):\n    return [z for i in q if (z := i)], z\n", []),
        ("", "try:\n    import a\nexcept ImportError as e:\n    print(e)\nfor i in a: print(i)\n", []),
        (
            "",
            "def f():\n    nonlocal_ = 1\n    def g():\n        return nonlocal_, lost\n    return g\n",
            ["lost"],
        ),
        ("", "from names import *\nprint(anything)\n", []),
        ("", "def f():\n    global g\n    g = __name__\nprint(g, int, __file__, [i for i in ()])\n", []),
        ("", "import torch.nn as nn\ndef f(m: 'Later', k='full') -> 'nn.Module': return {'free': k}\n", []),
    ],
)
def test_names_that_lost_their_definition(before: str, after: str, lost: list[str]) -> None:
    assert names_left_undefined(before, after) == lost


LONG = " + ".join(["1"] * 3000) + "\n"


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ("x = 1\n", "def f(:\n", True),
        ("x = 1\n", LONG, True),
        (LONG, "x = 1\n", False),
        (LONG, LONG, False),
        ("x = 1\ry = 2\r", "x = 2\ry = 2\r", False),
        ("x = 1\n", "x = 2  # said\n", False),
    ],
)
def test_libcst_reads_what_it_read_before(before: str, after: str, refused: bool) -> None:
    expected = pytest.raises(SyntaxError, match="LibCST reads") if refused else contextlib.nullcontext()
    try:
        tree = ast.parse(after)
    except (SyntaxError, RecursionError):
        tree = None
    with expected:
        check_concrete(before, after, tree)


HEAD = "import a\n\n\n@a.b\nclass C(a.D):  # c\n    x = 1\n\n    def f(self) -> int:\n"
NEW = [
    ("a.b(2)\n", "a.b(2)\n"),
    ("    " * 2 + "return 2\n", "if 1:\n        return 2\n"),
    ("    async def g(self): return 3\n", "if 1:\n    async def g(self): return 3\n"),
    ("\tif a:\n\t\tb()\n\telse:\n\t\tc()\n", "if 1:\n\tif a:\n\t\tb()\n\telse:\n\t\tc()\n"),
]


@pytest.mark.parametrize(("line", "expected"), NEW, ids=[line for line, _ in NEW])
def test_a_second_parser_reads_what_is_new(line: str, expected: str) -> None:
    body = "        return 1\n" if line[:1] in " a" else "\tpass\n"
    before = HEAD + body + "y = 2\n" if line[0] != "\t" else "def f():\n" + body
    place = before.index(body) + len(body) if line[0] != "a" else len(before)
    after = before[:place] + line + before[place:]
    found = new_statements(before, after, ast.parse(after))
    assert found.endswith(expected)
    heads = found.removesuffix(expected)
    assert heads.count("pass\n") == found.count("def f") + found.count("class C")
    assert "x = 1" not in found and "y = 2" not in found and "return 1" not in found
    ast.parse(found.replace("return", "").replace("await", ""))


def test_what_moved_or_lost_its_line_ends_is_nothing_new() -> None:
    before = "def f():\r\n    a(\r\n        1)\r\n    b()\r\n"
    after = "b()\ndef f():\n    b()\n    a(\n        1)"
    found = new_statements(before, after, ast.parse(after))
    assert found == "b()\ndef f():\n    pass\n"


@pytest.mark.parametrize(
    "after",
    ["x = 1; y = 2\n", "x = 1; \\\n  y = 3\n", "if 1: \\\n    x = 4\n", "def f(): \\\n  x\n"],
)
def test_odd_lines_are_not_refused(after: str) -> None:
    check_concrete("x = 0\n", after, ast.parse(after))


def test_a_file_whose_rewrite_would_lose_a_name_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def train(model):\n    model = FSDP(model)\n    return model\n"
    )
    write(tmp_path, {"train.py": source, "other.py": source})

    def forget(module: Module, draft: Module, *rest: object) -> str:
        return draft.text if module.path == "train.py" else real(module, draft, *rest)  # type: ignore[arg-type]

    real = changes.settle_imports
    monkeypatch.setattr(changes, "settle_imports", forget)
    done = plan_rewrite(tmp_path, find_files(tmp_path, [tmp_path]), Options())
    assert [change.path for change in done.changes] == ["other.py"]
    left = [r for r in done.reported if r.finding.code == "FM903"]
    assert [(r.finding.place.path, "fully_shard" in r.finding.message) for r in left] == [("train.py", True)]
