"""Files that only speak of FSDP: their trees are let go, and nothing is missed by that."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest
from small import rewrite_of, write

from codemods.analysis.collect import Contents, Reader, read_project
from codemods.analysis.index import Index
from codemods.analysis.module import Module
from codemods.analysis.telling import may_use_fsdp
from codemods.model import Options
from codemods.plan import plan_rewrite
from codemods.sources import find_files

_FSDP = "torch.distributed.fsdp"
_SPEAKS = {
    "a comment": "x = 1  # FSDP shards this\n",
    "a docstring": 'def f(x):\n    """Used for FSDP."""\n    return x\n',
    "a longer name": "class Model:\n    _fsdp_plan = {}\n\n\nis_fsdp_managed_module(Model)\n",
    "a module of its own": "from .fsdp import managed\nfrom pkg.fsdp import managed\n",
}
_USES = {
    "a module of torch": f"from {_FSDP} import wrap\n",
    "a module imported whole": "import torch.distributed.fsdp as sharding\n",
    "a part of torch": "from torch.distributed import fsdp\n",
    "the class": "def f(x, FSDP):\n    return FSDP(x)\n",
    "a string": "kind = 'FSDP'\n",
    "an f-string": "kind = f'fsdp_{x}'\n",
    "an argument": "f(fsdp='full_shard')\n",
    "a parameter": "def f(fsdp_config):\n    pass\n",
    "a setting": "run('--use_fsdp')\n",
    "an attribute": "x = settings.fsdp\n",
    "a type comment": "x = f()  # type: FSDP\n",
    "what a user left": "x = f()  # fsdp-migrate: ignore[FM507] of another kind\n",
}


@pytest.mark.parametrize(
    ("text", "expected"), [(t, False) for t in _SPEAKS.values()] + [(t, True) for t in _USES.values()]
)
def test_what_can_use_fsdp(tmp_path: Path, text: str, expected: bool) -> None:
    write(tmp_path, {"pkg/a.py": text})
    module = Reader(tmp_path).load("pkg/a.py")
    assert module is not None
    assert may_use_fsdp(module, Index(["pkg/a.py", "pkg/fsdp.py"], lambda path: None)) is expected


def test_few_trees_are_alive_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of files that only speak of FSDP none stays as a tree, and never are two of them there at once."""
    alive: weakref.WeakSet[Module] = weakref.WeakSet()
    most, parse = 0, Module.__init__

    def counted(module: Module, source: object) -> None:
        nonlocal most
        parse(module, source)  # type: ignore[arg-type]
        alive.add(module)
        most = max(most, len(alive))

    monkeypatch.setattr(Module, "__init__", counted)
    speaking = {f"pkg/{n}_{i}.py": text for n in range(20) for i, text in enumerate(_SPEAKS.values())}
    asks = f"from {_FSDP} import FullyShardedDataParallel as FSDP\nasked = isinstance(x, FSDP)\n"
    write(tmp_path, {**speaking, "pkg/fsdp.py": "managed = 1\n", "asks.py": asks})
    project, skipped = read_project(tmp_path, find_files(tmp_path, [tmp_path]), Options())
    assert sorted(project.modules) == ["asks.py"] and skipped == {}
    assert len(project.linked) > 80 and most == 2


def test_a_name_that_the_project_gave_is_followed(tmp_path: Path) -> None:
    """What wraps under such a name is found where nothing else of the file tells of FSDP."""
    files = {
        "names.py": f"from {_FSDP} import FullyShardedDataParallel as my_fsdp_class\n",
        "train.py": "from names import my_fsdp_class\n\nmodel = my_fsdp_class(build())\n",
    }
    done, changed = rewrite_of(tmp_path, files)
    assert "FM101" in {item.finding.code for item in done.reported}
    assert "my_fsdp_class(" not in changed["train.py"]


@pytest.mark.parametrize(("attribute", "code"), [("_handle", "FM507"), ("_unshard_stream", "FM310")])
def test_private_names_are_found_in_files_that_speak_of_fsdp(
    tmp_path: Path, attribute: str, code: str
) -> None:
    text = f"# with FSDP\ndef f(unit):\n    return unit.{attribute}\n"
    done, _ = rewrite_of(tmp_path, {"a.py": text})
    assert code in {item.finding.code for item in done.reported}


def test_contents_are_kept_up_to_a_size() -> None:
    kept = Contents(most_bytes=10)
    for name, size in (("a", 4), ("b", 4), ("c", 4), ("d", 11)):
        assert kept.keep(name, bytes(size)) == bytes(size)
        if name == "c":
            assert [kept.get(one) for one in "abc"] == [None, bytes(4), bytes(4)]
    assert [kept.get(one) for one in "abcd"] == [None] * 4


def test_copies_tell_what_they_could_not_read(tmp_path: Path) -> None:
    """Files that cannot be decoded or parsed are said by one process and by several alike."""
    write(tmp_path, {f"{n}.py": f"import {_FSDP}\nx = {n}\n" for n in range(20)})
    (tmp_path / "broken.py").write_text(f"import {_FSDP}\nx = (\n")
    (tmp_path / "odd.py").write_bytes(b"fsdp = '\xff'\n")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    files = sorted({*find_files(tmp_path, [tmp_path]), "gone.py"})
    one, two = (plan_rewrite(tmp_path, files, Options(), jobs=jobs) for jobs in (1, 2))
    assert one == two and sorted(one.skipped) == ["broken.py", "gone.py", "odd.py"]
