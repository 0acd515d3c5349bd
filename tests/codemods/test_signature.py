"""`ls codemods/rules/kwargs` is FSDP1's constructor; names of the rewriter exist in the installed torch."""

from __future__ import annotations

import inspect
from pathlib import Path

import torch.distributed.fsdp as fsdp
import torch.distributed.fsdp.wrap as wrap
from torch.distributed.fsdp import FullyShardedDataParallel

import codemods.rules.kwargs
from codemods import torch_names
from codemods.rule import all_rules
from codemods.shard_call import SIGNATURE, keyword_rules


def _constructor() -> list[str]:
    return [
        name for name in inspect.signature(FullyShardedDataParallel.__init__).parameters if name != "self"
    ]


def test_signature_is_that_of_the_installed_torch() -> None:
    assert list(SIGNATURE) == _constructor()


def test_one_file_and_one_rule_per_keyword() -> None:
    folder = Path(codemods.rules.kwargs.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    all_rules()
    assert files == set(_constructor()) - {"module"}
    assert set(keyword_rules()) == files


def test_fields_of_mixed_precision_are_those_of_the_installed_torch() -> None:
    fields = list(inspect.signature(fsdp.MixedPrecision).parameters)
    assert list(torch_names.MIXED_PRECISION_FIELDS) == fields


def test_names_of_torch_exist() -> None:
    for name in torch_names.CONFIG_TYPES | torch_names.STATE_DICT_TYPES:
        assert hasattr(fsdp, name), name
    for name in torch_names.POLICIES | {"wrap", "enable_wrap"}:
        assert hasattr(wrap, name), name
    for name in torch_names.FSDP2_NAMES - {"DataParallelMeshDims", "share_comm_ctx"}:
        assert hasattr(fsdp, name), name


def test_every_rule_has_a_manual_and_no_code_two_owners() -> None:
    owners: dict[str, str] = {}
    for rule in all_rules():
        assert len(rule.first_sentence) > 20 and rule.first_sentence.endswith((".", "?")), rule.name
        for code in rule.codes:
            assert code not in owners, f"{code}: {owners.get(code)} and {rule.name}"
            owners[code] = rule.name
