"""What older releases of torch lack is made of what they have; what they name otherwise is no difference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules

from fsdp_migrate.errors import UsageError
from fsdp_migrate.verify import known_errors, older_torch, releases
from fsdp_migrate.verify.environment import free_port, rank_environment, rank_server_environment
from fsdp_migrate.verify.record import ArmRecord, OptimizerFacts


def arm(kind: str, **settings: object) -> ArmRecord:
    values = tuple(sorted(settings.items()))
    return ArmRecord(optimizers=[OptimizerFacts(1, 0, kind, {"w": values}, 0)])


@pytest.mark.parametrize(
    ("kind", "newer", "alike"),
    [
        ("AdamW", {"decoupled_weight_decay": True}, True),
        ("AdamW", {"decoupled_weight_decay": False}, False),  # Adam of the candidate's own
        ("Adam", {"decoupled_weight_decay": False}, True),
        ("Adam", {"decoupled_weight_decay": True}, False),
        ("OurAdam", {"decoupled_weight_decay": True}, True),
        ("NAdam", {"maximize": False}, True),
        ("NAdam", {"maximize": True}, False),
        ("NAdam", {"another": False}, False),
    ],
)
def test_setting_without_a_word_in_an_older_release(kind: str, newer: dict[str, Any], alike: bool) -> None:
    old, new = arm(kind, lr=0.1), arm(kind, lr=0.1, **newer)
    for left, right in ((old, new), (new, old)):
        a, b = releases.named_alike(left, right)
        assert (a.optimizers[0].settings == b.optimizers[0].settings) is alike
    assert old.optimizers[0].settings == {"w": (("lr", 0.1),)}


@pytest.mark.parametrize(
    ("version", "found"),
    [("2.1.2+cu121", (2, 1)), ("2.13.0", (2, 13)), ("2.9.0a0+git1", (2, 9)), ("unknown", (0, 0))],
)
def test_release(version: str, found: tuple[int, int]) -> None:
    assert releases.release(version) == found


def test_torch_that_is_too_old_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "installed_torch", lambda: "2.0.1")
    with pytest.raises(UsageError, match=r"verify needs torch 2.1 or later, and this is 2.0.1"):
        releases.require(releases.OLDEST, "verify", "")
    monkeypatch.setattr(releases, "installed_torch", lambda: "2.6.0")
    releases.require(releases.OLDEST, "verify", "")
    releases.require_fsdp2("cuda", "the job")
    with pytest.raises(UsageError, match=r"the job on cpu needs torch 2.7 or later, and this is 2.6.0"):
        releases.require_fsdp2("cpu", "the job")
    monkeypatch.setattr(releases, "installed_torch", lambda: "")  # not known: torch itself will say
    releases.require_fsdp2("cpu", "the job")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("AttributeError: 'Tensor' object has no attribute 'full_tensor'", "found no gradient at all"),
        ("AttributeError: 'Stream' object has no attribute 'record_event'", "CPUs with torch 2.7"),
        (
            "ImportError: cannot import name 'fully_shard' from 'torch.distributed.fsdp'",
            "torch 2.6 and later",
        ),
    ],
)
def test_what_an_older_torch_lacks_is_explained(error: str, words: str) -> None:
    assert words in known_errors.meaning(error, "")


def test_hook_sees_keywords_where_torch_hands_it_none(monkeypatch: pytest.MonkeyPatch) -> None:
    handles = []
    register = modules.register_module_forward_hook

    def as_in_2_1(hook: Any, *, always_call: bool = False) -> Any:
        handles.append(register(hook, always_call=always_call))
        return handles[-1]

    class Inner(nn.Module):
        def forward(self, x: torch.Tensor, *, scale: float) -> torch.Tensor:
            return x * scale

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor, mask: object = None) -> torch.Tensor:
            return self.inner(x, scale=2.0)  # type: ignore[no-any-return]

    seen: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(nn.Module, "__call__", nn.Module.__call__)  # put back afterwards
    monkeypatch.setattr(modules, "register_module_forward_hook", as_in_2_1)
    older_torch.register_forward_hook(lambda module, _a, kw, _o: seen.append((type(module).__name__, kw)))
    try:
        model = Outer()
        assert float(model(torch.ones(()), mask=5)) == 2.0
        with pytest.raises(TypeError):
            model.inner(torch.ones(()))
        model.inner(torch.ones(()), scale=1.0)
    finally:
        handles[0].remove()
    assert seen[:2] == [("Inner", {"scale": 2.0}), ("Outer", {"mask": 5})]
    assert seen[-1] == ("Inner", {"scale": 1.0})


_COLLECTIVES = """
import os, sys
import torch
import torch.distributed as dist
from fsdp_migrate.verify import older_gloo

dist.init_process_group("gloo")
rank = dist.get_rank()
real = {name: getattr(dist, name) for name in older_gloo._NAMES}


def poor(name):
    def collective(*arguments, **keywords):
        call = {**dict(zip(older_gloo._NAMES[name], arguments)), **keywords}
        tensors = [one for value in call.values() for one in (value if isinstance(value, list) else [value])]
        if any(isinstance(one, torch.Tensor) and one.dtype is torch.bfloat16 for one in tensors):
            raise RuntimeError("Invalid scalar type")
        if name in lacks:
            raise RuntimeError("no support for " + name + " in Gloo process group")
        assert call.get("op") != dist.ReduceOp.AVG
        return real[name](**call)
    return collective


def results(dtype, op):
    x = (torch.arange(4.0) + 10 * rank).to(dtype)
    gathered, mine, parts = x.new_zeros(8), x.new_zeros(2), [torch.zeros_like(x) for _ in range(2)]
    dist.all_gather_into_tensor(gathered, x)
    dist.reduce_scatter_tensor(mine, x, op=op)
    total = x.clone()
    dist.all_reduce(total, op)
    assert dist.all_gather(parts, x, async_op=True).wait() is not False
    swapped, sent = torch.zeros_like(x), x.clone()
    dist.all_to_all_single(swapped, x)
    dist.broadcast(sent, 1)
    if "all_gather" in uneven:
        some = [x.new_zeros(1), x.new_zeros(0)]
        dist.all_gather(some, x[: 1 - rank])
        assert some[0].tolist() == [0.0]
    return torch.cat([gathered, mine, total, *parts, swapped, sent])


uneven = ()
sums = (dist.ReduceOp.SUM, dist.ReduceOp.AVG)
kinds = [(dtype, op) for dtype in (torch.float32, torch.bfloat16) for op in sums]
wanted = [results(*kind) for kind in kinds]
said = []
torch.__version__ = "2.1.2"
for lacks in ((), ("all_gather_into_tensor", "reduce_scatter_tensor")):
    for name in real:
        setattr(dist, name, poor(name))
    older_gloo.apply(said.append)
    uneven = ("all_gather",)
    found = [results(*kind) for kind in kinds]
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True)), (lacks, wanted, found)
assert "reduce_scatter_tensor: this gloo has no averages; the sum is divided" in said
assert "all_gather_into_tensor: this gloo has none; it is made of others" in said
assert sum("no bfloat16" in text for text in said) >= 6
print("equal")
sys.stdout.flush()
os._exit(0)
"""


def test_collectives_that_an_older_gloo_lacks(tmp_path: Path) -> None:
    program = tmp_path / "ranks.py"
    program.write_text(_COLLECTIVES)
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(program)],
            env={**rank_server_environment(2), **rank_environment(rank, 2, port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    for rank in ranks:
        out, err = rank.communicate(timeout=120)
        assert (rank.returncode, out) == (0, "equal\n"), err
