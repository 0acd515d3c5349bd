"""Every public method of FSDP1's wrapper has a rule, every rule a manual page, every code a case."""

from __future__ import annotations

import ast
import re
import string
from pathlib import Path

from case import all_cases
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

import codemods
from codemods.rule import all_rules

# Of nn.Module, overridden only so that names carry no wrapper prefix; under FSDP2 there is none.
SAME_UNDER_FSDP2 = {"named_buffers", "named_parameters"}
ROOT = Path(codemods.__file__).parent


def _public_methods() -> set[str]:
    return {name for name in vars(FullyShardedDataParallel) if not name.startswith("_")} - SAME_UNDER_FSDP2


def test_every_public_method_of_the_wrapper_is_spoken_of() -> None:
    pages = [f"{rule.name}\n{rule.manual}" for rule in all_rules()]
    silent = {m for m in _public_methods() if not any(re.search(rf"\b{m}\b", page) for page in pages)}
    assert silent == set()


def test_files_of_methods_are_named_after_methods() -> None:
    files = {path.stem for path in (ROOT / "rules" / "methods").glob("*.py")} - {"__init__"}
    methods = _public_methods() | {name for name in dir(nn.Module) if not name.startswith("_")}
    assert files <= methods


def test_every_rule_has_a_manual_page() -> None:
    for rule in all_rules():
        assert rule.manual.strip(), rule.name


def test_codes_belong_to_one_rule_each() -> None:
    owners: dict[str, str] = {}
    for rule in all_rules():
        for code in rule.codes:
            assert owners.setdefault(code, rule.name) == rule.name


def test_every_code_of_a_method_or_name_is_found_in_some_case() -> None:
    found = set(re.findall(r"\bFM[345]\d\d\b", "\n".join(case.findings for case in all_cases())))
    codes = {code for rule in all_rules() for code in rule.codes if code[2] in "345"}
    assert codes - found == set()


def test_every_template_names_what_it_is_given() -> None:
    """A template that is filled on a rare path only must not fail there."""
    checked = 0
    for path in sorted(Path(codemods.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="code"), args=[_, ast.Constant(value=str(template))]):
                    given = {keyword.arg for keyword in node.keywords}
                    names = {name for _, name, _, _ in string.Formatter().parse(template) if name}
                    bare = {name for name in names if "." not in name} - given - {"torch"}
                    assert None in given or not bare, f"{path.name}:{node.lineno}: {template}"
                    checked += 1
    assert checked > 20
