"""Files of different programs: objects of one cannot get to the other, whatever names they share."""

from __future__ import annotations

from pathlib import Path

import pytest
from small import project_of

from codemods.analysis.shelf import Shelf
from codemods.project import Project

_IMPORTS = {
    "main.py": ["trainer.py", "registry.py"],
    "trainer.py": ["common.py"],
    "registry.py": ["common.py"],
    "other.py": ["common.py"],
    "alone.py": [],
}


@pytest.mark.parametrize(
    ("path", "together"),
    [
        ("trainer.py", {"main.py", "trainer.py", "registry.py", "common.py"}),
        ("other.py", {"other.py", "common.py"}),
        ("common.py", {"main.py", "trainer.py", "registry.py", "other.py", "common.py"}),
        ("alone.py", {"alone.py"}),
    ],
)
def test_what_can_run_together_is_imported_by_one_file(path: str, together: set[str]) -> None:
    paths = {*_IMPORTS, "common.py"}
    shelf = Shelf(paths, lambda path: b"", lambda path: None, _IMPORTS, {})
    assert shelf.together(path).among(paths) == together
    assert (shelf.group(path) == shelf.group("main.py")) == (path != "alone.py")


_TRAINER = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Trainer:
    def fit(self, model):
        self.model = FSDP(model)

    def save(self, path):
        return self.model.state_dict()
"""
_MAIN = """\
from torch import nn
import registry
from trainer import Trainer

def main():
    trainer = Trainer()
    registry.last.append(trainer)
    trainer.fit(nn.Linear(2, 2))
    registry.report()
"""
_REGISTRY = """\
last = []

def report():
    return last[0].model.state_dict()
"""
_SECOND = """\
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from other import fill

fill(object())
model = FSDP(nn.Linear(2, 2))
"""
_OTHER = """\
from common import Sizes

def fill(trainer):
    trainer.model = Sizes()
    return trainer.fit(1), trainer.model.state_dict()
"""


def _kinds(project: Project) -> list[tuple[str, str]]:
    calls = project.method_calls("state_dict")
    return sorted((c.module.path, type(project.sharded(c.module, c.receiver)).__name__) for c in calls)


@pytest.mark.parametrize(
    "put", ["last.append(trainer)", "last.insert(0, trainer)", "last.extend([trainer])", "last += [trainer]"]
)
def test_objects_get_to_every_file_of_the_same_program(tmp_path: Path, put: str) -> None:
    main = _MAIN.replace("last.append(trainer)", put)
    project = project_of(tmp_path, {"main.py": main, "trainer.py": _TRAINER, "registry.py": _REGISTRY})
    assert _kinds(project) == [("registry.py", "Sharded"), ("trainer.py", "Sharded")]


def test_files_of_other_programs_are_not_parsed_for_a_method_or_attribute(tmp_path: Path) -> None:
    files = {
        "main.py": _MAIN,
        "trainer.py": "from common import Sizes\n" + _TRAINER,
        "registry.py": _REGISTRY,
        "common.py": "class Sizes:\n    pass\n",
        "second.py": _SECOND,
        "other.py": _OTHER,
    }
    project = project_of(tmp_path, files)
    assert _kinds(project) == [("registry.py", "Sharded"), ("trainer.py", "Sharded")]
    assert set(project.linked) == set(files)
    assert "other.py" not in project.modules
