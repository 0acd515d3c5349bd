"""Names that only FSDP1 has are spoken of, whatever object they are taken from."""

from __future__ import annotations

import pytest
from programs import Program, found_at, ordered

_HEAD = "from torch.distributed.fsdp import FSDPModule  # fsdp\n"

LEFT = [
    "with something.summon_full_params(x):\n    pass",
    "for m in x.fsdp_modules(y):\n    pass",
    "y = x._fsdp_wrapped_module.config",
    'y = getattr(x, "_fsdp_wrapped_module")',
    'if hasattr(x, "_fsdp_wrapped_module"):\n    pass',
    'if type(x).__name__ == "FullyShardedDataParallel":\n    pass',
    'if x.__class__.__name__ in ("DDP", "FullyShardedDataParallel"):\n    pass',
    "z = x.flat_param.data",
    "x.set_state_dict_type(y, kind)",
]


@pytest.mark.parametrize("text", LEFT)
def test_a_name_of_fsdp1_has_a_finding(text: str) -> None:
    found = found_at(Program({"main.py": f"{_HEAD}{text}\n"}, "main.py", 2))
    assert found.get(("main.py", 2))


def test_an_import_that_a_function_replaces_has_the_finding_not_the_functions_uses() -> None:
    name = "_get_module_fsdp_state"
    own = f"def {name}(module):\n    return module.state\n"
    text = f"{_HEAD}from torch.distributed.fsdp._common_utils import {name}\n{own}state = {name}(model)\n"
    assert found_at(Program({"main.py": text}, "main.py", 2)) == {("main.py", 2): {"FM516"}}


def test_a_method_of_that_name_in_the_project_is_not_fsdp1s() -> None:
    own = "class Units:\n    @staticmethod\n    def fsdp_modules(m): return []\n"
    text = f"{_HEAD}{own}\nUnits.fsdp_modules(x)\n"
    assert found_at(Program({"main.py": text}, "main.py", 6)) == {}


@pytest.mark.parametrize(("owner", "codes"), [("Net", {"FM516"}), ("Engine", set())])
def test_an_object_that_a_model_can_get_to_is_not_taken_for_its_other_kind(
    owner: str, codes: set[str]
) -> None:
    """Only one of two values is found, as the other lies deeper than anything is followed."""
    inner = "FSDP(Net())"
    for _ in range(6):
        inner = f"{{'a': {inner}}}"
    text = f"""
        deep = {inner}
        model = deep{"['a']" * 6} if flag else {owner}()
        with model.summon_full_params(model): pass  # <-
    """
    made = ordered(text, "FSDP")
    assert found_at(made).get((made.path, made.line), set()) == codes
