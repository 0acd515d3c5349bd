"""The second opinion on leftovers, which the cases and the corpus stand on."""

from __future__ import annotations

from pathlib import Path

import leftovers

_BACKEND = """\
class Backend:
    def summon_full_params(self, module):
        return self.summon_full_params(module)
"""
_TRAINER = """\
from backend import Backend

class Trainer:
    def __init__(self, model):
        self._backend = Backend()
        self.model = model

    def generate(self):
        with self._backend.summon_full_params(self.model):
            pass
        with self.model.summon_full_params(self.model):
            pass
        with self.summon_full_params(self.model):
            pass
"""


def test_methods_of_the_folders_own_classes_are_no_leftovers(tmp_path: Path) -> None:
    (tmp_path / "backend.py").write_text(_BACKEND)
    (tmp_path / "trainer.py").write_text(_TRAINER)
    found = [(one.path, one.line, one.name) for one in leftovers.scan(tmp_path)]
    assert found == [("trainer.py", 11, ".summon_full_params"), ("trainer.py", 13, ".summon_full_params")]


def test_an_import_that_a_function_replaces_stands_for_nothing_but_itself(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from torch.distributed.fsdp._common_utils import _get_module_fsdp_state\n"
        "def _get_module_fsdp_state(module):\n    return module.state\n"
        "state = _get_module_fsdp_state(model)\n"
    )
    (tmp_path / "user.py").write_text("from own import _get_module_fsdp_state as of\nstate = of(model)\n")
    assert [(one.path, one.line) for one in leftovers.scan(tmp_path)] == [("own.py", 1)]
