"""One helper module for a repository, however many packages and runs: enums and records mean the same."""

from __future__ import annotations

import ast
import itertools
import json
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch.distributed.fsdp as fsdp1
from small import write
from torch import nn

from codemods.editing.helper_additions import with_additions
from codemods.editing.helper_assembly import Needs, assemble
from codemods.editing.helper_draft import KEYWORDS
from codemods.editing.helper_policy_text import POLICY_PARTS
from codemods.editing.helper_state_dict_text import STATE_DICT_FUNCTIONS
from codemods.editing.helper_training_text import TRAINING_PARTS
from codemods.model import Options, Rewrite
from codemods.plan import plan_rewrite
from codemods.sources import find_files

_CONFIG = """
from dataclasses import dataclass

import torch
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy


@dataclass
class Config:
    strategy: ShardingStrategy
    precision: MixedPrecision


def parse(name):
    precision = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
    return Config(ShardingStrategy[name], precision)
"""
_SHARD = """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def {name}(model, config):
    return FSDP(
        model,
        sharding_strategy=config.strategy,
        mixed_precision=config.precision,
        device_id=torch.device("cpu"),
    )
"""
_TRAIN = """
import torch
import torch.distributed as dist
from a.config import parse
from b.late import late


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(1))


dist.init_process_group("gloo", init_method="file://{store}", rank=0, world_size=1)
model = late(Model(), parse("NO_SHARD"))
print([len(p.placements) for p in model.parameters()], model.shift.dtype)
"""
_PACKAGING = '[project]\nname = "x"\nversion = "1"\n'
_BASE = {
    "a/__init__.py": "",
    "a/config.py": _CONFIG,
    "b/__init__.py": "",
    "b/early.py": f"from a.config import parse\n{_SHARD.format(name='early')}",
}
_LATE = _SHARD.format(name="late")


@dataclass(frozen=True)
class Two:
    """Two rewrites of one repository.

    Attributes:
        before: path -> text, for the first.
        added: path -> text, what is added before the second.
        first, second: the folder that is rewritten.
        helpers: the helper modules at the end.
        line: how the added file imports it.
        moved: a file that a person moves in between, and the names that it was and is imported by.
        path: where its packages are found.
    """

    before: dict[str, str]
    added: dict[str, str]
    helpers: list[str]
    line: str
    first: str = "."
    second: str = "."
    moved: tuple[str, str, str] | None = None
    path: str = "."


REPOSITORIES = {
    "a package that knows the first": Two(
        _BASE, {"b/late.py": _LATE}, ["fsdp2_sharding.py"], "from fsdp2_sharding import"
    ),
    "installed packages": Two(
        {**_BASE, "pyproject.toml": _PACKAGING},
        {"b/late.py": _LATE},
        ["a/fsdp2_sharding.py"],
        "from a.fsdp2_sharding import",
    ),
    "a source folder": Two(
        {"pyproject.toml": _PACKAGING, **{f"src/{path}": text for path, text in _BASE.items()}},
        {"src/b/late.py": _LATE},
        ["src/a/fsdp2_sharding.py"],
        "from a.fsdp2_sharding import",
        path="src",
    ),
    "only the added package is rewritten": Two(
        {**_BASE, "pyproject.toml": _PACKAGING},
        {"b/late.py": _LATE},
        ["a/fsdp2_sharding.py"],
        "from a.fsdp2_sharding import",
        second="b",
    ),
    "only one package is rewritten first": Two(
        {**_BASE, "pyproject.toml": _PACKAGING},
        {"b/late.py": _LATE},
        ["b/fsdp2_sharding.py"],
        "from b.fsdp2_sharding import",
        first="b",
    ),
    "the helper module was moved and renamed": Two(
        {**_BASE, "pyproject.toml": _PACKAGING},
        {"b/late.py": _LATE},
        ["a/common/sharding.py"],
        "from a.common.sharding import",
        moved=("a/fsdp2_sharding.py", "a.fsdp2_sharding", "a.common.sharding"),
    ),
}


def _rewritten(target: Path) -> Rewrite:
    done = plan_rewrite(target, find_files(target, [target]), Options())
    for change in done.changes:
        (target / change.path).write_bytes(change.after)
    return done


def _helpers(folder: Path) -> list[str]:
    found = [path for path in folder.rglob("*.py") if "Written by fsdp-migrate" in path.read_text()]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _move(folder: Path, old: str, name: str, new: str) -> None:
    to = folder / f"{new.replace('.', '/')}.py"
    to.parent.mkdir()
    (to.parent / "__init__.py").touch()
    (folder / old).rename(to)
    for path in folder.rglob("*.py"):
        path.write_text(path.read_text().replace(name, new))


# torch is imported once: each program runs in a fork.
_RUNNER = """
import json, os, runpy, sys
import torch, torch.distributed.fsdp

for folder, path in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        os.chdir(folder)
        sys.path[:0] = [folder, os.path.join(folder, path)]
        with open("out.txt", "w") as sys.stdout:
            runpy.run_path("train.py", run_name="__main__")
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name -> the repository after both rewrites and a run, whose output is `out.txt`."""
    folders = {}
    for name, two in REPOSITORIES.items():
        folder = folders[name] = tmp_path_factory.mktemp("repository")
        write(folder, two.before)
        assert not _rewritten(folder / two.first).open_findings
        if two.moved:
            _move(folder, *two.moved)
        write(folder, {**two.added, "train.py": _TRAIN.format(store=folder / "store")})
        assert not _rewritten(folder / two.second).open_findings
    told = json.dumps([(str(folder), REPOSITORIES[name].path) for name, folder in folders.items()])
    command = [sys.executable, "-c", _RUNNER, told]
    subprocess.run(command, check=True, timeout=300)
    return folders


@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_file_added_later_shares_the_helper_module(name: str, repositories: dict[str, Path]) -> None:
    """It says NO_SHARD and a dtype of buffers by the types of the first; both are heeded."""
    two, folder = REPOSITORIES[name], repositories[name]
    assert _helpers(folder) == two.helpers
    assert two.line in (folder / next(iter(two.added))).read_text()
    # Of two dimensions, (replicate, shard): FULL_SHARD would have one.
    assert (folder / "out.txt").read_text() == "[2, 2] torch.bfloat16\n"
    assert not _rewritten(folder).changes


def test_a_helper_module_outside_of_what_is_rewritten_is_not_written_to(tmp_path: Path) -> None:
    write(tmp_path, {**_BASE, "pyproject.toml": _PACKAGING})
    _rewritten(tmp_path)
    before = (tmp_path / "a/fsdp2_sharding.py").read_bytes()
    late = _LATE.replace("device_id", "forward_prefetch=config.early, device_id")
    write(tmp_path, {"b/late.py": late})
    done = _rewritten(tmp_path / "b")
    left = [r.finding for r in done.reported if r.finding.code == "FM903"]
    assert [found.place.path for found in left] == ["late.py"]
    assert "more than ../a/fsdp2_sharding.py has" in left[0].message
    assert "rewrite the whole repository" in left[0].message
    assert (tmp_path / "b/late.py").read_text() == late.lstrip()
    assert (tmp_path / "a/fsdp2_sharding.py").read_bytes() == before
    assert not _rewritten(tmp_path).open_findings
    assert "forward_prefetch: bool" in (tmp_path / "a/fsdp2_sharding.py").read_text()
    assert _helpers(tmp_path) == ["a/fsdp2_sharding.py"]


def test_the_helper_module_of_a_package_that_is_rewritten_alone_is_found(tmp_path: Path) -> None:
    package = {"outer/__init__.py": "", "outer/inner/__init__.py": "", "outer/inner/late.py": _LATE}
    write(tmp_path, {**package, "outer/inner/deep/__init__.py": "", "outer/inner/deep/more.py": _LATE})
    _rewritten(tmp_path / "outer/inner")
    line = "from outer.inner.fsdp2_sharding import shard_model\n"
    assert line in (tmp_path / "outer/inner/late.py").read_text()
    assert line in (tmp_path / "outer/inner/deep/more.py").read_text()
    assert _helpers(tmp_path) == ["outer/inner/fsdp2_sharding.py"]


def _drafts() -> list[tuple[frozenset[str], Needs]]:
    """Thirty random choices of parts."""
    chance = random.Random(1)
    parts = sorted({*POLICY_PARTS, *TRAINING_PARTS, *STATE_DICT_FUNCTIONS, "shard_model", "BackwardPrefetch"})
    fields = ["buffer_dtype", "cast_forward_inputs", "_module_classes_to_ignore", "batch_norm"]
    return [
        (
            frozenset(chance.sample(parts, chance.randint(1, 5))),
            Needs(
                frozenset(chance.sample(sorted(KEYWORDS), chance.randint(0, 6))),
                frozenset(chance.sample(fields, chance.randint(0, 2))),
            ),
        )
        for _ in range(30)
    ]


def _defined(text: str) -> list[str]:
    nodes = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return [ast.unparse(node) for node in nodes]


def test_what_a_person_added_stays_and_the_rest_is_as_written_anew(tmp_path: Path) -> None:
    drafts = _drafts()
    for number, ((names, needs), (more, others)) in enumerate(itertools.pairwise(drafts)):
        # What `shard_model` takes is told by its signature: without it there are no keywords.
        needs = needs if "shard_model" in names else Needs()
        written = assemble(names, needs)
        joined = needs.joined(others if "shard_model" in more else Needs())
        whole = assemble(names | more, joined)
        merged, edited = with_additions(f"{written}\n\ndef ours():\n    return 1\n", written, whole)
        assert edited == []
        assert [part for part in _defined(merged) if "def ours" not in part] == _defined(whole)
        assert merged.count("def ours") == 1
        exec(compile(merged, "helper.py", "exec", dont_inherit=True), {"__name__": __name__})
        (tmp_path / f"helper_{number}.py").write_text(merged)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_an_edited_function_stays_while_others_change(tmp_path: Path) -> None:
    names = frozenset({"shard_model"})
    written = assemble(names, Needs(frozenset({"auto_wrap_policy", "device_id"})))
    whole = assemble(names, Needs(frozenset({"auto_wrap_policy", "device_id", "sync_module_states"})))
    text = written.replace("    visit(model)\n", "    visit(model)\n    units.reverse()\n", 1)
    merged, edited = with_additions(text, written, whole)
    assert edited == []
    assert "units.reverse()" in merged and "sync_module_states: bool" in merged
    assert "def broadcast_from_first_rank" in merged
    commented = written.replace("    return model\n", "    return model  # ours\n")
    again, edited = with_additions(commented, written, whole)
    assert edited == ["shard_model"] and "# ours" in again and "sync_module_states: bool" not in again


def _helper(name: str) -> ModuleType:
    names = frozenset({"shard_model", "state_dict_type", "rekey_optim_state_dict", "MixedPrecision"})
    module = ModuleType(name)
    text = assemble(names, Needs(frozenset({"sharding_strategy", "mixed_precision"})))
    exec(compile(text, f"{name}.py", "exec", dont_inherit=True), module.__dict__)
    return module


def test_members_of_other_enums_mean_what_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    helper, other = _helper("helper_here"), _helper("helper_there")
    seen = []
    monkeypatch.setattr(helper, "training_device", lambda *_: None)
    monkeypatch.setattr(helper, "make_mesh", lambda strategy, *_: seen.append(strategy))
    monkeypatch.setattr(helper, "fully_shard", lambda *_, **__: None)
    for member in (*fsdp1.ShardingStrategy, *other.ShardingStrategy, *helper.ShardingStrategy):
        helper.shard_model(nn.Linear(1, 1), sharding_strategy=member)
        assert seen.pop() is helper.ShardingStrategy[member.name]
    helper.shard_model(nn.Linear(1, 1))
    assert seen.pop() is helper.ShardingStrategy.FULL_SHARD
    model = nn.Linear(1, 1)
    for kind in (fsdp1.StateDictType, other.StateDictType):
        helper.set_state_dict_type(model, kind.SHARDED_STATE_DICT)
        chosen = helper.get_state_dict_type(model).state_dict_type
        assert chosen is helper.StateDictType.SHARDED_STATE_DICT
    state = {"state": {0: {}}, "param_groups": []}
    name = helper.rekey_optim_state_dict(state, fsdp1.OptimStateKeyType.PARAM_NAME, model)
    assert list(name["state"]) == ["weight"]


@pytest.mark.parametrize("member", [fsdp1.BackwardPrefetch.BACKWARD_POST, "NO_SHARD", 77])
def test_what_is_no_member_raises(member: object) -> None:
    helper, model = _helper("helper_here"), nn.Linear(1, 1)
    with pytest.raises(ValueError, match="is not a valid ShardingStrategy"):
        helper.shard_model(model, sharding_strategy=member)
    with pytest.raises(ValueError, match="is not a valid StateDictType"):
        helper.set_state_dict_type(model, member)
    with pytest.raises(ValueError, match="is not a valid OptimStateKeyType"):
        helper.rekey_optim_state_dict({"state": {}, "param_groups": []}, member, model)


def test_a_precision_of_another_type_raises() -> None:
    helper, other = _helper("helper_here"), _helper("helper_there")
    for precision in (fsdp1.MixedPrecision(), other.MixedPrecision()):
        with pytest.raises(TypeError, match="mixed_precision is not the MixedPrecision of this module"):
            helper.shard_model(nn.Linear(1, 1), mixed_precision=precision)


_POLICY = """
import functools
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from model import Block


def policy():
    return functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})


def shard(model):
    return FSDP(model, auto_wrap_policy=policy())
"""
_MODEL = "from torch import nn\n\n\nclass Block(nn.Module):\n    pass\n"


def test_a_function_that_nothing_calls_any_more_goes_and_no_helper_module_comes(tmp_path: Path) -> None:
    write(tmp_path, {"model.py": _MODEL, "shard.py": _POLICY.replace("def shard", "\f\ndef shard")})
    done = _rewritten(tmp_path)
    assert [change.path for change in done.changes] == ["shard.py"]
    text = (tmp_path / "shard.py").read_text()
    assert "policy" not in text and "functools" not in text and "isinstance(module, Block)" in text
    said = [(r.finding.code, r.detail) for r in done.reported if r.finding.code == "FM201"]
    assert said == [("FM201", "and goes with `policy`, which nothing calls any more")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def policy", "# as the paper has it\ndef policy"),
        ("def policy", "@functools.cache\ndef policy"),
        ("def shard", "__all__ = ['policy', 'shard']\n\n\ndef shard"),
        ("def shard", "def other():\n    return policy()\n\n\ndef shard"),
        ("auto_wrap_policy=policy()", "auto_wrap_policy=None"),
    ],
)
def test_a_function_that_somebody_may_call_stays(old: str, new: str, tmp_path: Path) -> None:
    write(tmp_path, {"model.py": _MODEL, "shard.py": _POLICY.replace(old, new)})
    _rewritten(tmp_path)
    assert "def policy():" in (tmp_path / "shard.py").read_text()
    assert _helpers(tmp_path) == ["fsdp2_sharding.py"]


def test_a_function_that_another_file_imports_stays(tmp_path: Path) -> None:
    write(tmp_path, {"model.py": _MODEL, "shard.py": _POLICY, "other.py": "from shard import policy\n"})
    _rewritten(tmp_path)
    assert "def policy():" in (tmp_path / "shard.py").read_text()
    assert _helpers(tmp_path) == ["fsdp2_sharding.py"]
