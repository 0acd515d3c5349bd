"""What is looked up in an index instead of by a search of its own: nodes within a block, words in texts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from small import project_of

from codemods.analysis.module import Module
from codemods.analysis.shelf import Before, shelf_of
from codemods.analysis.spread_marks import Cell
from codemods.rules.names.optimizer_before_wrap import _may_build
from codemods.sources import decode

BLOCKS = """
before = 0
@decorated(given=(inside := 1))
class A:
    first = 1
    class Inner: second = 2
    def method(self):
        third = 3
        if third: fourth = 4
behind = 5
"""


def test_statements_within_a_block_are_those_of_a_walk_through_it() -> None:
    module = Module(decode("a.py", BLOCKS.encode()))
    blocks = [n for n in ast.walk(module.tree) if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.If)]
    assert len(blocks) == 4
    for block in (module.tree, *blocks):
        for kind in (ast.Assign, ast.Name, ast.NamedExpr, ast.ClassDef):
            walked = {node for node in ast.walk(block) if type(node) is kind}
            assert set(module.within(block, kind)) == walked
    within = [ast.unparse(one.targets[0]) for one in module.within(blocks[0], ast.Assign)]
    assert within == ["first", "second", "third", "fourth"]


@pytest.mark.parametrize(
    ("text", "just_before", "is_found"),
    [
        ("run", Before.ANYTHING, True),  # the whole file
        ("rerun", Before.ANYTHING, False),
        ("run2", Before.ANYTHING, False),
        ("x.run", Before.A_DOT, True),
        ("run", Before.A_DOT, False),
        ("def run(): 0", Before.A_DEFINITION, True),
        ("def run(): 0", Before.NO_DEFINITION, False),
        ("class run: 0", Before.NO_DEFINITION, False),
        ("run()", Before.NO_DEFINITION, True),
        ("self.run", Before.ANOTHER, False),
        ("cls.run", Before.ANOTHER, False),
        ("myself.run", Before.ANOTHER, True),
        ("a.self.run", Before.ANOTHER, True),
        ("super().run", Before.ANOTHER, True),
        ("super().run", Before.ANOTHER_CALLED, False),
        ("x.run; self.run", Before.ANOTHER_CALLED, True),
    ],
)
def test_what_stands_right_before_a_name(text: str, just_before: Before, is_found: bool) -> None:
    shelf = shelf_of({"a.py": Module(decode("a.py", text.encode()))})
    assert shelf.where("run", just_before=just_before) == (["a.py"] if is_found else [])


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        (b"Adam(p)", True),
        (b"optim.SGD (p)", True),
        (b"FusedAdamW(p)", True),
        (b"build_optimizer(p)", True),
        (b"optimizer(p)", True),
        (b"OPTIMISE(p)", True),
        (b"hadamard(p)", False),
        (b"my_optim(p)", False),
        (b"Adam", False),
    ],
)
def test_calls_with_the_name_of_an_optimizer(code: bytes, is_found: bool) -> None:
    assert _may_build(code) is is_found


def test_marks_are_handed_on_in_the_order_they_came() -> None:
    marks, taken = [ast.Pass() for _ in range(50)], list[object]()
    cell = Cell()
    for mark in marks:
        cell.put(mark)
    cell.take(taken.append)
    assert taken == marks


BUILTIN_NAMES = {
    "a.py": """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from names import *

        def build(model):
            return FSDP(model), any([])
    """,
}


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ("def any(x): ...\n", True),
        ("async def any(x): ...\n", True),
        ("class any: ...\n", True),
        ("first, any = 1, 2\n", True),
        ("any: int = 2\n", True),
        ("from elsewhere import any\n", True),
        ("def f():\n    any = 1\n", False),
        ("x = any([])\n", False),
        ("f(any=1)\n", False),
        ("any == 1\n", False),
    ],
)
def test_a_star_import_is_followed_for_a_builtin_only_where_the_file_binds_it(
    tmp_path: Path, text: str, is_read: bool
) -> None:
    project = project_of(tmp_path, {**BUILTIN_NAMES, "names.py": text})
    assert project.index.may_have("names.py", "any") is is_read
