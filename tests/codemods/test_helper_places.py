"""Where the helper module is written: once where that can be, and importable however the repository is run.

The rewritten programs are run with a stand-in for torch, which answers every name: what is tested is that
each file finds the helper module.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import tool

_STAND_IN = """
import importlib.abc, importlib.machinery, sys, types
from unittest import mock

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        module = mock.MagicMock(name=spec.name)
        module.__path__, module.__spec__ = [], spec
        return module
    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Finder())
"""
# The strategy is decided at run time, so that the wrap becomes a call of the helper module.
_SHARD = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy


def shard(model, strategy):
    return FSDP(model, sharding_strategy=ShardingStrategy[strategy])
"""
_SAVE = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


def save(model, kind):
    with FSDP.state_dict_type(model, StateDictType[kind]):
        return model.state_dict()
"""
_SETTINGS = """
from torch.distributed.fsdp import ShardingStrategy


class Settings:
    strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD
"""
_PACKAGING = '[project]\nname = "x"\nversion = "1"\n'


@dataclass(frozen=True)
class Layout:
    """A repository.

    Attributes:
        files: path -> text.
        modules: the helper modules expected.
        runs: working directory, PYTHONPATH and arguments of each way it is run.
    """

    files: dict[str, str]
    modules: list[str]
    runs: list[tuple[str, str, str]]


LAYOUTS = {
    "src layout with a script beside it": Layout(
        {
            "pyproject.toml": _PACKAGING,
            "src/pkg/__init__.py": "",
            "src/pkg/training/__init__.py": "",
            "src/pkg/training/sharding.py": _SHARD,
            "scripts/run.py": f"from pkg.training.sharding import shard\n{_SAVE}",
        },
        ["src/pkg/training/fsdp2_sharding.py"],
        [(".", "src", "scripts/run.py")],
    ),
    "scripts and a folder without __init__": Layout(
        {"train.py": f"from utils.sharding import shard\n{_SAVE}", "utils/sharding.py": _SHARD},
        ["fsdp2_sharding.py"],
        [(".", "", "train.py"), ("utils", "", "../train.py")],
    ),
    "packages that do not know each other, installed": Layout(
        {
            "pyproject.toml": _PACKAGING,
            "one/__init__.py": "",
            "one/a.py": _SHARD,
            "two/__init__.py": "",
            "two/b.py": _SAVE,
            "two/c.py": _SHARD,
        },
        ["two/fsdp2_sharding.py"],
        [(".", "", "-m one.a"), (".", "", "-m two.b"), ("one", "..", "-c 'import one.a, two.c'")],
    ),
    "packages that are run from the root": Layout(
        {"one/__init__.py": "", "one/a.py": _SHARD, "two/__init__.py": "", "two/b.py": _SAVE},
        ["fsdp2_sharding.py"],
        [(".", "", "-m one.a"), (".", "", "-m two.b")],
    ),
    "examples that are run in their own folders": Layout(
        {"examples/a/train.py": _SHARD, "examples/b/train.py": _SAVE, "examples/b/more.py": _SHARD},
        ["examples/a/fsdp2_sharding.py", "examples/b/fsdp2_sharding.py"],
        [("examples/a", "", "train.py"), (".", "", "examples/b/train.py"), ("examples/b", "", "more.py")],
    ),
    "installed packages whose scripts are run in their own folders": Layout(
        {
            "pyproject.toml": _PACKAGING,
            "one/__init__.py": "",
            "one/norms.py": "size = 1\n",
            "one/train.py": f"from norms import size\n{_SHARD}",
            "two/__init__.py": "",
            "two/sharding.py": _SHARD,
            "two/train.py": f"from sharding import shard\n{_SAVE}",
        },
        ["one/fsdp2_sharding.py", "two/fsdp2_sharding.py"],
        [("one", "", "train.py"), (".", "", "one/train.py"), ("two", "", "train.py")],
    ),
    "relative imports only": Layout(
        {
            "pkg/__init__.py": "",
            "pkg/model.py": "class Block: pass\n",
            "pkg/saving/__init__.py": "",
            "pkg/saving/files.py": f"from ..model import Block\n{_SAVE}",
            "pkg/training/__init__.py": "",
            "pkg/training/wrap.py": f"from ..model import Block\n{_SHARD}",
        },
        ["pkg/fsdp2_sharding.py"],
        [(".", "", "-m pkg.saving.files"), (".", "", "-m pkg.training.wrap")],
    ),
    "scripts beside an __init__ that nothing imports": Layout(
        {
            "__init__.py": "",
            "logging.py": "",
            "src/__init__.py": "",
            "src/sharding.py": f"import logging\n{_SHARD}",
            "train.py": f"from src.sharding import shard\n{_SAVE}",
        },
        ["fsdp2_sharding.py"],
        [(".", "", "train.py")],
    ),
    "a package in a folder of its own name, an __init__ beside it": Layout(
        {
            "__init__.py": "",
            "repository/__init__.py": "",
            "repository/sharding.py": _SHARD,
            "train.py": f"from repository.sharding import shard\n{_SAVE}",
        },
        ["fsdp2_sharding.py"],
        [(".", "", "train.py")],
    ),
    "a package whose modules have the names of others": Layout(
        {
            "__init__.py": "",
            "collections.py": "",
            "sharding.py": f"import collections\n{_SHARD}",
            "saving/__init__.py": "",
            "saving/files.py": f"from ..sharding import shard\n{_SAVE}",
        },
        ["fsdp2_sharding.py"],
        [("..", "", "-m repository.saving.files"), ("..", "", "-m repository.sharding")],
    ),
    "an idle __init__ at the top, around a package of the same name": Layout(
        {
            "__init__.py": "",
            "repository/__init__.py": "",
            "repository/model.py": "class Block: pass\n",
            "repository/sharding.py": f"from repository.model import Block\n{_SHARD}",
            "train.py": "from repository.sharding import shard\n",
        },
        ["repository/fsdp2_sharding.py"],
        [(".", "", "train.py"), (".", "", "-m repository.sharding")],
    ),
    "a package that imports itself by its name": Layout(
        {
            "__init__.py": "",
            "sharding.py": _SHARD,
            "train.py": f"from repository.sharding import shard\n{_SAVE}",
        },
        ["fsdp2_sharding.py"],
        [("..", "", "-m repository.train")],
    ),
    "an `__init__.py` at the top of what is run from there": Layout(
        {
            "__init__.py": "",
            "core/__init__.py": f"from .names import size\n{_SHARD}",
            "core/names.py": "size = 1\n",
            "train/__init__.py": "",
            "train/run.py": f"from core import shard\n{_SAVE}",
        },
        ["fsdp2_sharding.py"],
        [(".", "", "-m train.run"), ("train", "..", "run.py")],
    ),
    "settings beside the scripts of an installed package": Layout(
        {
            "pyproject.toml": _PACKAGING,
            "src/product/__init__.py": "",
            "src/product/model.py": _SHARD,
            **{
                f"examples/{name}/{file}": text
                for name in ("speech", "sound")
                for file, text in {
                    f"{name}_settings.py": _SETTINGS,
                    "train.py": f"from product.model import shard\nfrom {name}_settings import Settings\n",
                }.items()
            },
            "tools/alone/settings.py": _SETTINGS,
            "tools/alone/show.py": "from settings import Settings\n",
            "tools/alone/run.py": "from product.model import shard\nfrom settings import Settings\n",
        },
        ["src/product/fsdp2_sharding.py", "tools/alone/fsdp2_sharding.py"],
        [
            *((f"examples/{name}", "../../src", "train.py") for name in ("speech", "sound")),
            ("tools/alone", "", "show.py"),
            ("tools/alone", "../../src", "run.py"),
        ],
    ),
    "a namespace package": Layout(
        {
            "company/product/model.py": f"from company.product.saving import save\n{_SHARD}",
            "company/product/saving.py": _SAVE,
            "main.py": "import company.product.model\n",
        },
        ["company/product/fsdp2_sharding.py"],
        [(".", "", "main.py"), (".", "", "-m company.product.model")],
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_file_finds_the_helper_module(name: str, tmp_path: Path) -> None:
    layout, folder = LAYOUTS[name], tmp_path / "repository"
    for path, text in layout.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    result = tool.rewrite_in_place(folder)
    assert result.open_codes == []
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("fsdp2_sharding*.py"))
    assert found == layout.modules
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(_STAND_IN)
    for directory, path, arguments in layout.runs:
        places = [tmp_path / "site", *([folder / directory / path] if path else [])]
        if path == "src":
            places[1:] = [folder / path]
        done = subprocess.run(
            f"{sys.executable} {arguments}",
            shell=True,
            cwd=folder / directory,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, places)),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stderr)
    before = {path: path.read_bytes() for path in folder.rglob("*.py")}
    tool.rewrite_in_place(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*.py")} == before
