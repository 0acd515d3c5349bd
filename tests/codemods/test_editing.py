"""Edits as data: nested edits, clashes, arguments, moved blocks, comments, imports, diffs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from small import rewrite_of

from codemods.analysis.module import Module
from codemods.editing.apply import apply_edits, compatible, shifted
from codemods.editing.code import code, insert_after, insert_before, replace, unwrap_block
from codemods.editing.diff import unified
from codemods.editing.removal import delete_argument
from codemods.editing.statements import is_under_rank0
from codemods.editing.todo import todo_lines
from codemods.model import Edit, FileChange, Hole, Options, Outcome, Ref, Span
from codemods.sources import decode


def module_of(text: str) -> Module:
    return Module(decode("m.py", text.encode()))


def apply(module: Module, *edits: Edit) -> str:
    return apply_edits(module.text, edits, lambda name, position: name.rpartition(".")[2], "\n")


def test_edits_within_kept_pieces_are_done() -> None:
    module = module_of("y = F(F(x), a=1)\n")
    outer, inner = sorted(module.calls(), key=lambda c: c.col_offset)
    edits = [
        replace(module, call, code(module, "{helper.g}({x})", x=call.args[0])) for call in (outer, inner)
    ]
    assert compatible(*edits)
    assert apply(module, *edits) == "y = g(g(x))\n"


def test_edits_in_replaced_text_clash_and_apart_do_not() -> None:
    whole = Edit("m.py", Span(0, 10), ("x",))
    assert not compatible(whole, Edit("m.py", Span(2, 4), ("y",)))
    assert not compatible(whole, Edit("m.py", Span(5, 12), ("y",)))
    assert compatible(whole, Edit("m.py", Span(10, 12), ("y",)))
    assert compatible(whole, Edit("m.py", Span(10, 10), ("y",)))
    assert compatible(whole, Edit("other.py", Span(2, 4), ("y",)))
    keeping = Edit("m.py", Span(0, 10), ("x(", Hole(Span(2, 5)), ")"))
    assert compatible(keeping, Edit("m.py", Span(2, 4), ("y",)))


def test_positions_count_characters_whatever_stands_before() -> None:
    module = module_of("naïve = 'ü€𝄞'; y = F('é', x)\n")
    call = next(iter(module.calls()))
    assert module.code(call) == "F('é', x)"
    assert apply(module, replace(module, call, ("g",))) == "naïve = 'ü€𝄞'; y = g\n"


_ARGUMENTS = {
    "F(m, a=1, b=2)": "F(m, b=2)",
    "F(m, a=1)": "F(m)",
    "F(a=1, m=2)": "F(m=2)",
    "F(a=1)": "F()",
    "F(m,\n  a=1,\n  b=2,\n)": "F(m,\n  b=2,\n)",
    "F(\n    m,\n    a=1,\n)": "F(\n    m,\n)",
    "F(\n    m,\n    a=1\n)": "F(\n    m,\n)",
    "F(m, b=2,\n  a=1)": "F(m, b=2)",
    "F(\n    m,\n    a=1,  # why\n    b=2,\n)": "F(\n    m,\n    # a: why\n    b=2,\n)",
    "F(\n    m,  # one\n    a=(\n        1\n    ),\n    b=2,\n)": "F(\n    m,  # one\n    b=2,\n)",
    "F(m, a=[1, 2], **kw)": "F(m, **kw)",
    "F(m, b=2, a=1,)": "F(m, b=2,)",
}


@pytest.mark.parametrize("before", _ARGUMENTS)
def test_an_argument_goes_with_its_comma_and_line(before: str) -> None:
    module = module_of(f"x = {before}\n")
    call = next(iter(module.calls()))
    keyword = next(k for k in call.keywords if k.arg == "a")
    got = apply(module, delete_argument(module, call, keyword))
    assert got == f"x = {_ARGUMENTS[before]}\n"
    ast.parse(got)


def test_a_block_is_unwrapped_and_its_strings_stay() -> None:
    module = module_of(
        'if a:\n    with c:\n        # first\n        x = """\n   text\n"""\n        y = F(x)\n    z = 1\n'
    )
    block = next(n for n in module.nodes(ast.With) if isinstance(n, ast.With))
    call = next(iter(module.calls()))
    got = apply(module, unwrap_block(module, block, before=("p = 1",)), replace(module, call, ("g()",)))
    assert got == 'if a:\n    p = 1\n    # first\n    x = """\n   text\n"""\n    y = g()\n    z = 1\n'


def test_lines_between_two_blocks_that_go_stand_where_the_second_did() -> None:
    module = module_of("def f():\n    with a:\n        x()\n    with b:\n        y()\n")
    first, second = (node for node in ast.walk(module.tree) if isinstance(node, ast.With))
    got = apply(
        module,
        unwrap_block(module, first),
        unwrap_block(module, second),
        insert_after(module, first.body[0], ("p = 1",)),
        insert_before(module, second, ("if p:\n    q()",)),
        insert_after(module, second.body[0], ("r = 1",)),
    )
    assert got == ("def f():\n    x()\n    p = 1\n    if p:\n        q()\n    y()\n    r = 1\n")


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("rank == 0", True),
        ("0 == self.rank", True),
        ("dist.get_rank() == 0 and save", True),
        ("not args.local_rank", True),
        ("trainer.is_main_process", True),
        ("is_master()", True),
        ("dist.get_rank() == 0 or not dist.is_initialized()", True),
        ("rank == 0 or debug", False),
        ("step % 100 == 0", False),
        ("rank != 0", False),
        ("rank == 10", False),
        ("not is_first_rank", False),
        ("not trainer.is_main_process", False),
        ("rank", False),
    ],
)
def test_conditions_that_hold_on_rank_0_only(test: str, expected: bool) -> None:
    inner = f"if {test}:\n    if step:\n        save(state)\n"
    for text in (inner, f"if {test}:\n    save(state)\nelse:\n    pass\n"):
        module = module_of(text)
        [save] = [call for call in module.calls() if ast.unparse(call) == "save(state)"]
        assert is_under_rank0(module, save) is expected
    module = module_of(f"if {test}:\n    pass\nelse:\n    save(state)\n")
    [save] = [call for call in module.calls() if ast.unparse(call) == "save(state)"]
    assert not is_under_rank0(module, save)


def test_lines_move_but_not_those_inside_strings() -> None:
    text = '        a = f"""{x}\n  kept\n"""\n\n        b = 1\n'
    assert shifted(text, -4, first_line=True) == '    a = f"""{x}\n  kept\n"""\n\n    b = 1\n'
    assert shifted("a\nb\n", 2, first_line=False) == "a\n  b\n"


def test_templates_keep_pieces_and_put_parentheses_where_needed() -> None:
    module = module_of("x = a if b else c\n")
    choice = next(n for n in module.nodes(ast.IfExp) if isinstance(n, ast.IfExp))
    assert (
        apply(module, replace(module, choice, code(module, "{m}.f()", m=choice)))
        == "x = (a if b else c).f()\n"
    )
    assert (
        apply(module, replace(module, choice, code(module, "f({m})", m=choice))) == "x = f(a if b else c)\n"
    )
    assert code(None, "{{}} {torch.nn.x}") == ("{} ", Ref("torch.nn.x")) or code(None, "{{}} {torch.nn.x}")[
        -1
    ] == Ref("torch.nn.x")


def test_a_long_todo_takes_several_lines_that_read_as_one() -> None:
    lines = todo_lines("FM103", "word " * 40, 60)
    assert len(lines) > 3 and all(len(line) <= 60 for line in lines)
    assert lines[0].startswith("# TODO(fsdp-migrate FM103): word")
    assert all(line.startswith("#   word") for line in lines[1:])


_FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel"
_WRAP = "model = FSDP(model, sharding_strategy=cfg.strategy)\n"
_IMPORT_CASES = {
    "alias of a used one stays": (
        f"import torch\n{_FSDP} as FSDP\n\nx = torch.ones(1)\n{_WRAP}",
        "import torch\n\nfrom fsdp2_sharding import shard_model\n\nx = torch.ones(1)\n",
    ),
    "only import": (
        f"{_FSDP} as FSDP\n\n{_WRAP}",
        "from fsdp2_sharding import shard_model\n\n",
    ),
    "docstring and future": (
        '"""Doc."""\nfrom __future__ import annotations\nimport torch.distributed.fsdp as f\n\n'
        "model = f.FullyShardedDataParallel(model, cpu_offload=cfg.x)\n",
        '"""Doc."""\nfrom __future__ import annotations\nfrom fsdp2_sharding import shard_model\n\n',
    ),
    "others of the statement stay": (
        "from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel as FSDP\n\n"
        f"{_WRAP}x = FSDPModule\n",
        "from torch.distributed.fsdp import FSDPModule\n\nfrom fsdp2_sharding import shard_model\n\n",
    ),
    "noqa is respected": (
        f"{_FSDP} as FSDP  # noqa: F401\n\n{_WRAP}",
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: F401\n",
    ),
    "a comment stays, where the statement began": (
        f"import os\nfrom torch.distributed.fsdp import CPUOffload  # for later\n{_FSDP} as FSDP\n\n{_WRAP}",
        "import os\n# for later\n",
    ),
    "beside one of the same module, with a name of its own": (
        f"import torch\n{_FSDP} as FSDP\nimport zlib_ng\n\nimport other\n\n\n"
        "def f(model, kept):\n    return isinstance(model, FSDP) and kept(FSDP)\n",
        f"import torch\n{_FSDP} as FSDP\nfrom torch.distributed.fsdp import FSDPModule\nimport zlib_ng\n",
    ),
    "in order among others that no blank line parts": (
        "import os\nimport torch\nfrom packaging import version\nfrom torch.optim import SGD\n"
        "from tqdm import tqdm\n\nif version:\n"
        f"    {_FSDP} as FSDP\n\nmodel = FSDP(model)\ntorch.save(model.state_dict(), 'f')\n",
        "import os\nimport torch\nfrom torch.distributed.checkpoint.state_dict import (\n"
        "    StateDictOptions,\n    get_model_state_dict,\n)\n"
        "from torch.distributed.fsdp import fully_shard\nfrom torch.optim import SGD\n",
    ),
    "own name of that kind": (
        f"{_FSDP} as FSDP\n\n\ndef shard_model(): ...\n\n\n{_WRAP}",
        "import fsdp2_sharding\n\n\ndef shard_model(): ...\n\n\nmodel = fsdp2_sharding.shard_model(",
    ),
}


@pytest.mark.parametrize("name", _IMPORT_CASES)
def test_imports_come_and_go(name: str, tmp_path: Path) -> None:
    before, start = _IMPORT_CASES[name]
    _, texts = rewrite_of(tmp_path, {"main.py": before})
    assert texts["main.py"].startswith(start), texts["main.py"]


def test_an_import_takes_the_place_of_another_only_in_order(tmp_path: Path) -> None:
    text = """\
        import torch
        from parts import build
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.optim import SGD

        model = FSDP(build(), sharding_strategy=cfg.strategy)
        """
    _, texts = rewrite_of(tmp_path, {"main.py": text, "parts.py": "def build(): ...\n"})
    assert texts["main.py"].startswith(
        "import torch\nfrom fsdp2_sharding import shard_model\nfrom parts import build\n"
        "from torch.optim import SGD\n"
    )


def test_locals_go_with_their_last_use_and_not_because_nothing_reads_them(tmp_path: Path) -> None:
    text = """\
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp import StateDictType

        def save(model, batch):
            model, kind, rows = FSDP(model), StateDictType.FULL_STATE_DICT, batch.shape[0]
            limit = batch.limit
            orig = batch.orig
            model = FSDP(model, use_orig_params=orig)
            return model, rows

        def load(batch):
            limit = batch.limit
            orig = batch.orig
            return limit, orig

        class Loader:
            def load(self, batch):
                limit = batch.limit
                orig = batch.orig
                return batch
        """
    _, texts = rewrite_of(tmp_path, {"main.py": text})
    # `limit` was never read in two of the functions; `orig` was read by the wrap alone in the first.
    assert texts["main.py"].count("limit = batch.limit") == 3
    assert texts["main.py"].count("orig = batch.orig") == 2
    assert "orig = batch.orig" not in texts["main.py"].split("def load")[0]


def test_lazy_imports_stay_lazy(tmp_path: Path) -> None:
    _, texts = rewrite_of(
        tmp_path,
        {
            "main.py": """
                def wrap(model):
                    from torch.distributed.fsdp import FullyShardedDataParallel

                    return FullyShardedDataParallel(model)
            """
        },
    )
    assert texts["main.py"] == (
        "def wrap(model):\n    from torch.distributed.fsdp import fully_shard\n\n"
        "    return fully_shard(model)\n"
    )


def test_a_name_exported_to_another_file_stays_until_that_file_stops_using_it(tmp_path: Path) -> None:
    files = {
        "names.py": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n",
        "main.py": "from names import FSDP\n\nmodel = FSDP(model)\n",
    }
    _, texts = rewrite_of(tmp_path / "a", files)
    assert "FSDP" not in texts["main.py"] and "FullyShardedDataParallel" not in texts["names.py"]
    files["main.py"] += "models = [FSDP(m) for m in models]\n"
    _, texts = rewrite_of(tmp_path / "b", files)
    assert "from names import FSDP" in texts["main.py"]
    assert "import FullyShardedDataParallel as FSDP" in texts.get("names.py", files["names.py"])


def test_the_helper_module_lies_where_its_users_can_import_it(tmp_path: Path) -> None:
    wrap = f"{_FSDP} as F\n\n\ndef shard(m, s):\n    return F(m, sharding_strategy=s)\n"
    _, flat = rewrite_of(tmp_path / "flat", {"one/wrap.py": wrap, "two/wrap.py": wrap})
    assert {"one/fsdp2_sharding.py", "two/fsdp2_sharding.py"} <= set(flat)
    _, package = rewrite_of(
        tmp_path / "package",
        {
            "src/pkg/__init__.py": "",
            "src/pkg/a/__init__.py": "",
            "src/pkg/a/wrap.py": wrap,
            "src/pkg/b.py": f"from .a.wrap import shard\n{wrap.replace('shard(', 'other(')}",
        },
    )
    assert "src/pkg/fsdp2_sharding.py" in package
    assert "from .fsdp2_sharding import shard_model" in package["src/pkg/b.py"]
    assert "from pkg.fsdp2_sharding import shard_model" in package["src/pkg/a/wrap.py"]


def test_a_file_of_that_name_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    _, texts = rewrite_of(
        tmp_path,
        {
            "fsdp2_sharding.py": "print('mine')\n",
            "main.py": f"{_FSDP} as F\n\nm = F(m, **kw)\n",
        },
    )
    assert "fsdp2_sharding.py" not in texts
    assert "from fsdp2_sharding_2 import shard_model" in texts["main.py"]
    assert "def shard_model" in texts["fsdp2_sharding_2.py"]


def test_a_second_rewrite_adds_to_the_helper_module(tmp_path: Path) -> None:
    first = {"a.py": f"{_FSDP} as F\n\nm = F(m, device_id=cfg.d)\n"}
    _, texts = rewrite_of(tmp_path, first)
    second = {
        "fsdp2_sharding.py": texts["fsdp2_sharding.py"],
        "a.py": texts["a.py"],
        "b.py": f"import a\n{_FSDP} as F\n\nm = F(m, cpu_offload=cfg.c)\n",
    }
    _, again = rewrite_of(tmp_path, second)
    assert (
        "device_id: int" in again["fsdp2_sharding.py"]
        and "cpu_offload: CPUOffload" in again["fsdp2_sharding.py"]
    )
    edited = {
        **second,
        "fsdp2_sharding.py": texts["fsdp2_sharding.py"].replace("unit by unit", "piece by piece"),
    }
    result, texts = rewrite_of(tmp_path, edited)
    assert "b.py" not in texts and not [path for path in texts if "fsdp2_sharding" in path]
    left = [r.finding for r in result.reported if r.finding.code == "FM903"]
    assert [found.place.path for found in left] == ["b.py"]
    assert "more of `shard_model` than fsdp2_sharding.py has" in left[0].message


def test_an_edited_helper_module_is_added_to_and_keeps_its_edits(tmp_path: Path) -> None:
    wrap = f"{_FSDP} as F\n\nm = F(m, device_id=cfg.d)\n"
    save = (
        f"import a\n{_FSDP} as F\n\n\ndef save(m, kind):\n"
        "    with F.state_dict_type(m, kind):\n        return m.state_dict()\n"
    )
    _, texts = rewrite_of(tmp_path, {"a.py": wrap})
    edited = texts["fsdp2_sharding.py"].replace("unit by unit", "piece by piece") + "\n\nOURS = 1\n"
    _, again = rewrite_of(tmp_path, {"a.py": texts["a.py"], "fsdp2_sharding.py": edited, "b.py": save})
    helper = again["fsdp2_sharding.py"]
    assert "fsdp2_sharding_2.py" not in again
    assert "piece by piece" in helper and "OURS = 1" in helper
    names = {n.name for n in ast.parse(helper).body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    assert {"shard_model", "state_dict_type", "model_state_dict", "full_tensors", "StateDictType"} <= names
    (tmp_path / "fsdp2_sharding.py").write_text(helper)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", "fsdp2_sharding.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    _, third = rewrite_of(
        tmp_path, {"a.py": texts["a.py"], "fsdp2_sharding.py": helper, "b.py": again["b.py"]}
    )
    assert "fsdp2_sharding.py" not in third


def test_diffs_are_taken_by_git(tmp_path: Path) -> None:
    changes = [
        FileChange("a.py", b"x = 1\r\ny = 2\r\n", b"x = 1\r\ny = 3\r\n"),
        FileChange("b.py", b"x = 1", b"x = 2"),
        FileChange("new/c.py", None, "é = 'ü'\n".encode()),
        FileChange("d.py", b"# latin\n" + b"s = '\xe9'\n", b"# latin\ns = '\xe8'\n"),
    ]
    for change in changes:
        if change.before is not None:
            (tmp_path / change.path).write_bytes(change.before)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    patch = "".join(unified(change) for change in changes).encode("utf-8", errors="surrogateescape")
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, check=True)
    for change in changes:
        assert (tmp_path / change.path).read_bytes() == change.after


def test_bom_encoding_and_mixed_newlines_are_kept(tmp_path: Path) -> None:
    from codemods.plan import plan_rewrite

    source = f"# -*- coding: latin-1 -*-\n{_FSDP} as F\n\ns = 'é'\nm = F(m)\n"
    (tmp_path / "latin.py").write_bytes(source.encode("latin-1"))
    body = source.splitlines(keepends=True)
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbf" + "".join(body[1:]).encode())
    (tmp_path / "mixed.py").write_bytes("".join(body[1:3]).encode() + b"a = 1\r\nm = F(m)\n")
    done = plan_rewrite(tmp_path, ["bom.py", "latin.py", "mixed.py"], Options())
    after = {change.path: change.after for change in done.changes}
    assert "s = 'é'\nfully_shard(m)\n" in after["latin.py"].decode("latin-1")
    assert after["bom.py"].startswith(b"\xef\xbb\xbffrom torch.distributed.fsdp import fully_shard\n")
    assert b"a = 1\r\nfully_shard(m)\n" in after["mixed.py"]


def test_files_that_cannot_be_read_stand_in_the_report(tmp_path: Path) -> None:
    from codemods.plan import plan_rewrite

    (tmp_path / "broken.py").write_text("import torch.distributed.fsdp\ndef f(:\n")
    (tmp_path / "bytes.py").write_bytes(b"# fsdp \xff\xfe\nx = 1\n")
    (tmp_path / "codec.py").write_bytes(b"# -*- coding: no-such-codec -*-\n# fsdp\n")
    (tmp_path / "null.py").write_bytes(b"# fsdp\nx = 1\x00\n")
    (tmp_path / "fine.py").write_text(f"{_FSDP} as F\nm = F(m)\n")
    names = sorted(p.name for p in tmp_path.glob("*.py"))
    done = plan_rewrite(tmp_path, names, Options())
    assert set(done.skipped) == {"broken.py", "bytes.py", "codec.py", "null.py"}
    told = {
        r.finding.place.path for r in done.reported if r.finding.code == "FM901" and r.outcome is Outcome.TODO
    }
    assert told == set(done.skipped)
    assert [change.path for change in done.changes] == ["fine.py"]


def test_what_a_todo_leaves_to_a_person_is_not_done_by_a_later_run(tmp_path: Path) -> None:
    todo = "# TODO(fsdp-migrate FM101): look at this first\n"
    text = f"{_FSDP} as F\n\n{todo}m = F(m)\n"
    done, texts = rewrite_of(tmp_path, {"main.py": text})
    assert texts == {}
    assert [(r.finding.code, r.outcome) for r in done.reported if not r.finding.is_note] == [
        ("FM101", Outcome.TODO)
    ]
    done, texts = rewrite_of(tmp_path, {"main.py": text.replace(todo, "")})
    assert texts["main.py"].endswith("fully_shard(m)\n")


def test_an_old_todo_keeps_check_failing_until_it_is_gone_or_ignored(tmp_path: Path) -> None:
    todo = "# TODO(fsdp-migrate FM401): save the whole\n#   state dict\nx = 1  # fsdp\n"
    done, _ = rewrite_of(tmp_path, {"main.py": todo})
    (item,) = done.reported
    assert item.outcome is Outcome.TODO and item.finding.remedy == "save the whole state dict"
    ignored = todo.replace("x = 1", "# fsdp-migrate: ignore[FM401] done elsewhere\nx = 1")
    done, _ = rewrite_of(tmp_path, {"main.py": ignored})
    assert [r.outcome for r in done.reported] == [Outcome.IGNORED] and done.reported[
        0
    ].detail == "done elsewhere"
