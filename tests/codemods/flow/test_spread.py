"""What is followed forwards is all that can be found backwards, and files are read as they are needed."""

from __future__ import annotations

import ast

import pytest
from carriers import CARRIERS
from hazards import HAZARDS
from programs import SHARDED, everything, found_at, found_on_demand, is_in_expression, program, project_of

from codemods.analysis.holding import Declared, No, Part, WrapCall
from codemods.analysis.spread_marks import MODEL, OPTIMIZER, SAID


@pytest.mark.parametrize("carrier", CARRIERS)
def test_all_that_is_found_backwards_is_followed_forwards(carrier: str) -> None:
    hazards = everything(in_expression=is_in_expression(CARRIERS[carrier]))
    made = program(CARRIERS[carrier], hazards, SHARDED)
    assert made is not None
    project = project_of(made.files)
    links, spread = project.links, project.links.spread
    assert spread is not None
    links.spread = None  # nothing is ruled out beforehand
    missed, models = [], 0
    for module in project.modules.values():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
                continue
            if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
                continue
            holds = any(isinstance(h, WrapCall | Declared | Part) for h in links.held(module, node))
            models += holds
            if (
                (holds and not spread.has(node, MODEL))
                or (not isinstance(links.sharded(module, node), No) and not spread.has(node, MODEL, SAID))
                or (not isinstance(links.optimizer_of(module, node), No) and not spread.has(node, OPTIMIZER))
            ):
                missed.append((module.path, node.lineno, ast.unparse(node)))
    assert missed == []
    assert models > 2


@pytest.mark.parametrize("carrier", [name for name, files in CARRIERS.items() if len(files) > 1])
def test_the_same_is_found_where_files_are_read_on_demand(carrier: str) -> None:
    for hazard in HAZARDS.values():
        made = program(CARRIERS[carrier], hazard, SHARDED)
        if made is not None:
            assert found_on_demand(made) == found_at(made)


def test_a_file_that_no_model_gets_to_is_not_parsed() -> None:
    text = (
        "def size(x):\n    return x.shape\n\n\nclass Table:\n    def state_dict(self):\n        return {}\n"
    )
    main = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nfrom other import Table, size\n"
    )
    main += "model = FSDP(net)\ntable = Table()\n"
    main += "print(size(batch), table.state_dict())\nuse(model.state_dict())\n"
    project = project_of({"main.py": main, "other.py": text}, on_demand=True)
    assert list(project.modules) == ["main.py"]
    main += "size(model)\n"
    project = project_of({"main.py": main, "other.py": text}, on_demand=True)
    assert list(project.modules) == ["main.py", "other.py"]
