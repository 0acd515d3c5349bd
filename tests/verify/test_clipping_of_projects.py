"""A project's own `clip_grad_norm_` is seen as torch's is, whoever has imported it under whatever name."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from fsdp_migrate.verify.probes import clipping
from fsdp_migrate.verify.probes.recorder import Recorder
from fsdp_migrate.verify.probes.session import Session

OWN = """
import torch

@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, *, floor=0.0):
    norm = sum(p.grad.norm(norm_type) ** norm_type for p in parameters) ** (1 / norm_type)
    for p in parameters:
        p.grad.mul_(torch.clamp(max_norm / norm, max=1.0, min=floor))
    return norm
"""
THROUGH_TORCH = """
import torch

def clip_grad_norm_(parameters, max_norm):
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm)
"""
SAYS_NOTHING = """
import torch

def clip_grad_norm_(parameters, max_norm):
    torch.nn.utils.clip_grad_norm_(parameters, max_norm)
"""
SAYS_MORE = """
import torch

def clip_grad_norm_(parameters, max_norm):
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm), len(parameters)
"""
OTHER_ARGUMENTS = """
import torch

def clip_grad_norm_(parameters, max_norm, optimizer=None):
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm)
"""


def load(path: Path, text: str) -> ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    kept = torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad.clip_grad_norm_
    given = torch.nn.utils.clip_grads_with_norm_
    method = torch.distributed.fsdp.FullyShardedDataParallel.clip_grad_norm_
    before = set(sys.modules)
    made = Session(Recorder(tmp_path / "rank0", 0), 3, tmp_path / "alive", lambda: None)
    clipping.attach(made)
    yield made
    torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad.clip_grad_norm_ = kept
    torch.nn.utils.clip_grads_with_norm_ = given
    torch.distributed.fsdp.FullyShardedDataParallel.clip_grad_norm_ = method  # type: ignore[method-assign]
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("text", [OWN, THROUGH_TORCH], ids=["own", "through torch"])
def test_call_of_a_projects_function_is_recorded_once(session: Session, tmp_path: Path, text: str) -> None:
    clip = load(tmp_path / "own_clipping.py", text).clip_grad_norm_  # as `from own_clipping import` binds it
    while session.at_first_model:
        session.at_first_model.pop()()
    weight = torch.ones(4, requires_grad=True)
    weight.grad = torch.full((4,), 3.0)
    norm = clip([weight], max_norm=1.5)
    assert float(norm) == 6.0
    assert torch.allclose(weight.grad, torch.full((4,), 0.75))
    assert len(session.now.clips) == 1
    found = session.now.clips[0]
    assert (found["function"], found["max_norm"], found["norm_type"]) == ("clip_grad_norm_", 1.5, 2.0)
    assert clipping.norm_words(found["norm"]) == {"value": 6.0, "ranks": []}
    clip([weight], 1.0)
    assert len(session.now.clips) == 2


@pytest.mark.parametrize("text", [SAYS_NOTHING, SAYS_MORE, OTHER_ARGUMENTS])
def test_what_gives_back_no_norm_is_recorded_as_torchs_call_within(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setitem(sys.modules, "blocked", None)  # type: ignore[arg-type]  # as Python keeps imports away
    clip = load(tmp_path / "own_clipping.py", text).clip_grad_norm_
    while session.at_first_model:
        session.at_first_model.pop()()
    weight = torch.ones(4, requires_grad=True)
    weight.grad = torch.full((4,), 3.0)
    clip([weight], 1.5, *([object()] if text is OTHER_ARGUMENTS else []))
    assert [clipping.norm_words(found["norm"])["value"] for found in session.now.clips] == [6.0]
    assert session.now.clips[0]["max_norm"] == 1.5
