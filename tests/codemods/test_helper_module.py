"""The helper module, whatever parts it has: formatted, typed, lint-free; its units are FSDP1's."""

from __future__ import annotations

import ast
import functools
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed.fsdp.wrap as fsdp1
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from codemods.editing.helper_assembly import Needs, assemble
from codemods.editing.helper_draft import KEYWORDS
from codemods.editing.helper_improvement_text import IMPROVEMENT_PARTS
from codemods.editing.helper_layout import Style
from codemods.editing.helper_parts import STATE_DICT_PARTS
from codemods.editing.helper_policy_text import OWN_SETTINGS, POLICY_PARTS
from codemods.editing.helper_training_text import TRAINING_PARTS

ROOT = Path(__file__).parents[2]
_PLAIN = Style()
_FIELDS = [
    "buffer_dtype",
    "cast_forward_inputs",
    "cast_root_forward_inputs",
    "keep_low_precision_grads",
    "_module_classes_to_ignore",
    "batch_norm",
    "_mutable",
]


def _assembled(names: set[str], keywords: set[str], fields: set[str], style: Style = _PLAIN) -> str:
    return assemble(frozenset(names), Needs(frozenset(keywords), frozenset(fields)), style)


def _modules(style: Style = _PLAIN) -> list[str]:
    """One module per part alone, one with everything, and thirty random ones."""
    chance = random.Random(0)
    keywords = [*KEYWORDS, "**"]
    found = [_assembled({"shard_model"}, {k}, set(), style) for k in keywords]
    found += [
        _assembled({name}, set(), {"buffer_dtype"}, style)
        for name in (*POLICY_PARTS, *IMPROVEMENT_PARTS, *TRAINING_PARTS, *STATE_DICT_PARTS, "CPUOffload")
    ]
    everything = {"shard_model", *POLICY_PARTS, *IMPROVEMENT_PARTS, *TRAINING_PARTS, *STATE_DICT_PARTS}
    found.append(_assembled(everything, set(keywords), set(_FIELDS), style))
    own = {keyword for name in OWN_SETTINGS for keyword in (name, f"own:{name}")}
    for more in ({"auto_wrap_policy"}, {"auto_wrap_policy", "sync_module_states"}):
        found.append(_assembled({"shard_model", "CustomPolicy"}, own | more, set(), style))
        less = {"cpu_offload", "own:cpu_offload", *more}
        found.append(_assembled({"shard_model", "CustomPolicy"}, less, set(), style))
    for _ in range(30):
        names = {"shard_model", *chance.sample(list(POLICY_PARTS), chance.randint(0, 3))}
        some = set(chance.sample(keywords, chance.randint(0, 9)))
        fields = set(chance.sample(_FIELDS, chance.randint(0, 4)))
        found.append(_assembled(names, some, fields, style))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("helpers")
    for number, text in enumerate(_modules()):
        (folder / f"helper_{number}.py").write_text(text)
    return folder


def _ruff(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments, "."]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


_STYLES = {
    "79": Style(width=79),
    "80, two columns": Style(width=80, indent="  "),
    "88": Style(),
    "100, single quotes": Style(width=100, quote="'"),
    "119, tabs": Style(width=119, indent="\t"),
    "120, Python 3.9": Style(width=120, python=(3, 9), torch=(2, 7)),
    "72, Python 3.8": Style(width=72, python=(3, 8)),
}


@pytest.mark.parametrize("name", _STYLES)
def test_linter_and_formatter_have_nothing_to_say(name: str, tmp_path: Path) -> None:
    style = _STYLES[name]
    for number, text in enumerate(_modules(style)):
        (tmp_path / f"helper_{number}.py").write_text(text)
        ast.parse(text, feature_version=style.python)
    quote = "single" if style.quote == "'" else "double"
    indent = "tab" if style.indent == "\t" else "space"
    (tmp_path / "ruff.toml").write_text(
        f"line-length = {style.width}\nindent-width = {len(style.indent.expandtabs(4))}\n"
        f'target-version = "py3{style.python[1]}"\n[format]\nindent-style = "{indent}"\n'
        f'quote-style = "{quote}"\n'
    )
    # Lines of docstrings are written for 88 columns and more.
    rules = "F,W,I,UP" if style.width < 88 or style.indent == "\t" else "E,F,W,I,UP"
    found = json.loads(_ruff(tmp_path, "check", "--select", rules, "--output-format", "json"))
    allowed = {"UP035", "UP006"} if style.python < (3, 9) else set()
    allowed |= {"W191"} if style.indent == "\t" else set()
    assert {(m["code"], m["message"]) for m in found if m["code"] not in allowed} == set()
    assert _ruff(tmp_path, "format", "--diff") == ""


def test_types_hold(tmp_path: Path) -> None:
    """mypy's strictest, against torch's own types, on modules with everything in them."""
    names = {"shard_model", *POLICY_PARTS, *IMPROVEMENT_PARTS, *TRAINING_PARTS, *STATE_DICT_PARTS}
    known = _assembled(names, set(KEYWORDS), {"buffer_dtype"}, Style(torch=(2, 7)))
    (tmp_path / "unknown_keywords.py").write_text(_assembled(names, {*KEYWORDS, "**"}, set(_FIELDS)))
    (tmp_path / "known_keywords.py").write_text(known)
    # With the cache of `test_house`, which has understood torch already or will not have to.
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--strict"]
    command += ["--cache-dir", str(ROOT / ".mypy_cache"), "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_assembly_of_what_is_there_is_what_is_there() -> None:
    from codemods.editing.helpers import _already_there

    for text in _modules():
        names, needs = _already_there(text)
        assert assemble(frozenset(names), needs) == text


def test_norm_is_summed_over_strided_shards_too() -> None:
    """FSDP2's placement below tensor parallelism is none that `is_shard()` knows (torch 2.13)."""
    module = ModuleType("fsdp2_sharding")
    exec(_assembled({"clip_grad_norm_"}, set(), set()), module.__dict__)
    summed: list[int] = []

    class Mesh:
        def get_group(self, dim: int) -> int:
            return dim

    class Gradient:
        placements = (Replicate(), _StridedShard(0, split_factor=2), Shard(0))
        device_mesh = Mesh()
        device, dtype = torch.device("cpu"), torch.float32

        def to_local(self) -> torch.Tensor:
            return torch.ones(4)

    module.DTensor = Gradient
    module.dist = SimpleNamespace(
        all_reduce=lambda norm, op, group: summed.append(group), ReduceOp=SimpleNamespace(SUM="sum")
    )
    assert module.clip_grad_norm_([SimpleNamespace(grad=Gradient())], 1.0) == 2.0
    assert summed == [1, 2]


@pytest.mark.parametrize("keyword", ["device_id", "sync_module_states"])
def test_training_device_is_the_cpu_where_torch_has_no_accelerator(
    keyword: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise RuntimeError("Cannot access accelerator device when none is available.")

    # As torch 2.6 behaves; later releases answer None.
    monkeypatch.setattr(torch.accelerator, "current_accelerator", refuse)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    module = ModuleType("helper")
    exec(compile(_assembled({"shard_model"}, {keyword}, set()), "helper.py", "exec"), module.__dict__)
    arguments = (None,) if keyword == "device_id" else ()
    assert module.training_device(*arguments) == torch.device("cpu")


def _helper() -> ModuleType:
    module = ModuleType("helper")
    text = _assembled({"shard_model", *POLICY_PARTS}, {"auto_wrap_policy"}, set())
    exec(compile(text, "helper.py", "exec"), module.__dict__)
    return module


HELPER = _helper()


class Leaf(nn.Module):
    def __init__(self, numel: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.Linear(1, numel).weight.detach())


class Inner(nn.Sequential):
    pass


def _trees() -> st.SearchStrategy[nn.Module]:
    leaf = st.integers(1, 9).map(Leaf)
    attention = st.just(None).map(lambda _: nn.MultiheadAttention(2, 1))

    def grow(children: st.SearchStrategy[nn.Module]) -> st.SearchStrategy[nn.Module]:
        several = st.lists(children, min_size=1, max_size=3)
        return st.one_of(
            several.map(lambda m: Inner(*m)),
            several.map(lambda m: nn.Sequential(*m)),
            several.map(nn.ModuleList),
            several.map(lambda m: nn.ModuleDict({str(i): part for i, part in enumerate(m)})),
        )

    return st.recursive(st.one_of(leaf, attention), grow, max_leaves=12).map(
        lambda m: nn.Sequential(m, Leaf(3))
    )


class _Wrapper(nn.Module):
    """Stands where FSDP1 would put its wrapper, and remembers the order."""

    def __init__(self, module: nn.Module, wrapped: list[nn.Module]) -> None:
        super().__init__()
        self.inner = module
        wrapped.append(module)


def _units_of_fsdp1(model: nn.Module, policy: Any) -> list[nn.Module]:
    """FSDP1's own recursion, with a wrapper that only remembers."""
    wrapped: list[nn.Module] = []
    if isinstance(policy, fsdp1.ModuleWrapPolicy):
        targets = policy._run_policy(model, set(), {})
        targets.pop(model, None)
        fsdp1._post_order_apply(model, lambda m: wrapped.append(m) if m in targets else None)
        return wrapped
    fsdp1._recursive_wrap(
        module=model,
        auto_wrap_policy=policy,
        wrapper_cls=_Wrapper,  # type: ignore[arg-type]
        ignored_modules=set(),
        ignored_params=set(),
        only_wrap_children=True,
        wrapped=wrapped,
    )
    return wrapped


def _own(module: nn.Module, recurse: bool, nonwrapped_numel: int) -> bool:
    return recurse or (isinstance(module, nn.Sequential) and 4 <= nonwrapped_numel <= 20)


_POLICIES: dict[str, Callable[[Any], Any]] = {
    "class": lambda home: functools.partial(
        home.transformer_auto_wrap_policy, transformer_layer_cls={Inner, Leaf}
    ),
    "module class": lambda home: home.ModuleWrapPolicy({Inner}),
    "size 5": lambda home: functools.partial(home.size_based_auto_wrap_policy, min_num_params=5),
    "size 1": lambda home: functools.partial(home.size_based_auto_wrap_policy, min_num_params=1),
    "size of own leaves": lambda home: functools.partial(
        home.size_based_auto_wrap_policy,
        min_num_params=4,
        force_leaf_modules={Inner},
        exclude_wrap_modules={Leaf},
    ),
    "condition": lambda home: functools.partial(
        home.lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, Leaf) and m.weight.numel() > 4
    ),
    "any of": lambda home: functools.partial(
        getattr(home, "_or_policy", None) or home.or_policy,
        policies=[
            functools.partial(home.size_based_auto_wrap_policy, min_num_params=12),
            functools.partial(home.transformer_auto_wrap_policy, transformer_layer_cls={Inner}),
        ],
    ),
    "classes of a private name": lambda home: functools.partial(
        getattr(home, "_module_wrap_policy", None) or home.module_wrap_policy, module_classes={Inner, Leaf}
    ),
    "own": lambda home: _own,
}


@pytest.mark.parametrize("name", _POLICIES)
@settings(max_examples=15, deadline=None)
@given(model=_trees())
def test_units_are_those_of_fsdp1(name: str, model: nn.Module) -> None:
    policy = _POLICIES[name]
    found = HELPER.find_units(model, policy(HELPER))
    assert found == _units_of_fsdp1(model, policy(fsdp1))
