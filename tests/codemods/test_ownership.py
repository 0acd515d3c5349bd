"""Every part of FSDP1's public surface in the installed torch has a rule that speaks for it, and does so.

A new torch that adds a keyword, method, exported name or configuration class fails here until a rule owns it.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from pathlib import Path

import pytest
import torch.distributed.fsdp as fsdp
import torch.distributed.fsdp.api as api
import torch.distributed.fsdp.wrap as wrap
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from codemods import ownership
from codemods.model import Options
from codemods.plan import plan_rewrite
from codemods.rule import all_rules
from codemods.rules.files import LEFT_OVER, LEFT_OVERS
from codemods.shard_call import SIGNATURE, keyword_rules
from codemods.torch_names import CONFIG_TYPES, MIXED_PRECISION_FIELDS, STATE_DICT_TYPES

RULES = {rule.name: rule for rule in all_rules()}
HEAD = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
ARGUMENTS = [name for name in inspect.signature(FSDP.__init__).parameters if name != "self"]
DEFINED = sorted(name for name in vars(FSDP) if not name.startswith("_"))
CONFIG_CLASSES = sorted(
    name for name, value in vars(api).items() if isinstance(value, type) and value.__module__ == api.__name__
)
ROOM = Path(ownership.__file__).parent


def said(tmp_path: Path, text: str, line: int) -> list[str]:
    """Codes of the findings in that line."""
    (tmp_path / "a.py").write_text(text)
    rewrite = plan_rewrite(tmp_path, ["a.py"], Options())
    assert rewrite.skipped == {}
    return [r.finding.code for r in rewrite.reported if r.finding.place.line == line]


def test_constructor_arguments_are_those_of_torch() -> None:
    assert list(SIGNATURE) == ARGUMENTS


@pytest.mark.parametrize("name", ARGUMENTS[1:])
def test_keyword_has_a_rule_and_a_manual(name: str) -> None:
    assert name in keyword_rules()
    assert RULES[ownership.KEYWORDS[name]].manual.strip()


@pytest.mark.parametrize("name", ARGUMENTS[1:])
def test_keyword_is_translated_or_refused(name: str, tmp_path: Path) -> None:
    text = HEAD + f"def shard(model, value):\n    return FSDP(model, {name}=value)\n"
    codes = said(tmp_path, text, 6)
    wraps = {"FM101", "FM102", "FM103"} & set(codes)
    assert wraps, codes
    assert "FM104" not in codes  # "FSDP1 has no such keyword"


def test_unknown_keyword_is_refused(tmp_path: Path) -> None:
    text = HEAD + "def shard(model, value):\n    return FSDP(model, not_a_keyword=value)\n"
    assert "FM104" in said(tmp_path, text, 6)


@pytest.mark.parametrize("name", DEFINED)
def test_method_has_an_owner(name: str) -> None:
    if name in ownership.UNCHANGED_METHODS:
        assert ownership.UNCHANGED_METHODS[name]
    else:
        assert ownership.METHODS[name] in RULES


@pytest.mark.parametrize("name", sorted(ownership.METHODS))
def test_method_on_a_sharded_model_is_spoken_of_by_its_owner(name: str, tmp_path: Path) -> None:
    text = HEAD + f"def use(model, x):\n    model = FSDP(model)\n    return model.{name}(x)\n"
    assert set(said(tmp_path, text, 7)) & set(RULES[ownership.METHODS[name]].codes)


STATIC = sorted(name for name in DEFINED if isinstance(vars(FSDP)[name], staticmethod))


@pytest.mark.parametrize("name", STATIC)
def test_static_method_of_the_class_is_spoken_of_by_its_owner(name: str, tmp_path: Path) -> None:
    text = HEAD + f"def use(model, x):\n    return FSDP.{name}(model, x)\n"
    assert set(said(tmp_path, text, 6)) & set(RULES[ownership.METHODS[name]].codes)


def test_no_owner_is_named_for_a_method_that_torch_lost() -> None:
    inherited = {"state_dict", "load_state_dict"}
    assert set(ownership.METHODS) | set(ownership.UNCHANGED_METHODS) == set(DEFINED) | inherited


@pytest.mark.parametrize("name", sorted(fsdp.__all__))
def test_exported_name_has_an_owner_or_is_fsdp2(name: str) -> None:
    assert (name in ownership.EXPORTED) != (name in ownership.NOT_FSDP1)
    if name in ownership.EXPORTED:
        assert ownership.EXPORTED[name] in RULES


@pytest.mark.parametrize("name", sorted(wrap.__all__))
def test_exported_name_of_wrap_has_an_owner(name: str) -> None:
    assert ownership.EXPORTED_BY_WRAP[name] in RULES


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *((fsdp.__name__, name) for name in sorted(set(fsdp.__all__) - ownership.NOT_FSDP1)),
        *((wrap.__name__, name) for name in sorted(wrap.__all__)),
    ],
)
def test_exported_name_that_is_used_is_found(module: str, name: str, tmp_path: Path) -> None:
    for text in (
        f"from {module} import {name}\n\n\ndef use():\n    print({name})\n",
        f"from {module} import {name} as other\n\n\ndef use():\n    print(other)\n",
        f"import {module} as m\n\n\ndef use():\n    print(m.{name})\n",
        f"from {module} import *\n\n\ndef use():\n    print({name})\n",
    ):
        codes = said(tmp_path, text, 5)
        owner = (ownership.EXPORTED | ownership.EXPORTED_BY_WRAP)[name]
        assert set(codes) & (set(RULES[owner].codes) | set(LEFT_OVERS)), text


@pytest.mark.parametrize("name", sorted(ownership.NOT_FSDP1 & set(fsdp.__all__)))
def test_fsdp2_name_is_left_in_peace(name: str, tmp_path: Path) -> None:
    text = f"from {fsdp.__name__} import {name}\n\n\ndef use():\n    print({name})\n"
    assert said(tmp_path, text, 5) == []


@pytest.mark.parametrize("name", CONFIG_CLASSES)
def test_config_class_is_known(name: str) -> None:
    assert name in CONFIG_TYPES | STATE_DICT_TYPES
    assert ownership.EXPORTED[name] in RULES


def test_fields_of_mixed_precision_are_those_of_torch() -> None:
    fields = tuple(field.name for field in dataclasses.fields(api.MixedPrecision))
    assert fields == MIXED_PRECISION_FIELDS


@pytest.mark.parametrize(
    "kind", [api.ShardingStrategy, api.BackwardPrefetch, api.StateDictType], ids=lambda k: k.__name__
)
def test_members_of_enumerations_are_those_the_helper_module_writes(kind: type[enum.Enum]) -> None:
    texts = "".join(path.read_text() for path in (ROOM / "editing").glob("helper*.py"))
    start = texts.index(f"class {kind.__name__}(enum.Enum)")
    written = re.findall(r"^    (\w+) = enum\.auto\(\)", texts[start:].split("'''")[0], re.MULTILINE)
    assert written == [member.name for member in kind]


def test_every_code_in_the_source_belongs_to_a_rule() -> None:
    owned = {code for rule in RULES.values() for code in rule.codes}
    examples = {"FM150", "FM399"}  # of the doors' docstrings
    used = {code for path in ROOM.rglob("*.py") for code in re.findall(r'"(FM\d{3})"', path.read_text())}
    assert used - examples == owned
    assert not owned & examples


def test_no_code_belongs_to_two_rules() -> None:
    codes = [code for rule in RULES.values() for code in rule.codes]
    assert len(codes) == len(set(codes))
    assert RULES[LEFT_OVER].codes == LEFT_OVERS
