"""What `--modernize` adds trains as the model does without it, whatever its units hold."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from codemods.editing.helper_assembly import Needs, assemble
from codemods.editing.helper_improvement_text import IMPROVEMENT_PARTS
from fsdp_migrate.demo.ranks import RankJob
from tests.ranks import forker

_JOB = """
import importlib.util
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import helper

CALLS = []


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, x, scale):
        CALLS.append(self)
        return x + F.dropout(self.down(torch.relu(self.up(x)) * scale), 0.1)


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleDict({"a": Block(), "b": Block()})
        self.out = nn.Linear(8, 8)

    def forward(self, x, scale):
        for block in self.blocks.values():
            x = block(x, scale)
        return self.out(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.last, self.first = nn.Embedding(16, 8), Stage(), Stage()
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.rand(12))  # float32, whatever units compute in

    def forward(self, tokens):
        return self.head(self.last(self.first(self.embed(tokens), self.scale), self.scale))


def trained(units, dtype, *improvements):
    torch.manual_seed(0)
    model = Model()
    policy = MixedPrecisionPolicy(param_dtype=dtype)
    for stage in (model.last, model.first):
        for block in stage.blocks.values() if units == "nested" else ():
            fully_shard(block, mp_policy=policy)
        fully_shard(stage, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    names = [name for name, _ in model.named_parameters()]
    for improvement in improvements:
        improvement(model)
    assert [name for name, _ in model.named_parameters()] == names
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    CALLS.clear()
    losses = []
    for step in range(2):
        chance = torch.Generator().manual_seed(step + 5 * dist.get_rank())
        tokens = torch.randint(0, 16, (2, 5), generator=chance)
        loss = F.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, len(CALLS)


dist.init_process_group("gloo")
ahead = lambda model: helper.prefetch_units(model, ahead=2)
for units in ("nested", "stages"):
    for dtype in (None, torch.bfloat16):
        losses, calls = trained(units, dtype)
        assert calls == 8
        for again in (helper.checkpoint_units, helper.checkpoint_units_selectively):
            assert trained(units, dtype, again) == (losses, 16), (units, dtype, again)
            assert trained(units, dtype, again, ahead)[0] == losses, (units, dtype, again)
        assert trained(units, dtype, ahead) == (losses, 8)


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.head = nn.Linear(32, 48), nn.Linear(48, 32), nn.Linear(32, 16)
        self.small, self.tied = nn.Linear(16, 8), nn.Linear(32, 16, bias=False)
        self.tied.weight = nn.Parameter(torch.randn(16, 32) / 6)
        self.again = nn.Linear(32, 16, bias=False)
        self.again.weight = self.tied.weight

    def forward(self, x):
        x = self.down(torch.relu(self.up(x)))
        return self.small(self.head(x) + self.tied(x) + self.again(x))


def trained_in_float8(is_asked):
    torch.manual_seed(0)
    model = Wide()
    if is_asked:
        assert helper.convert_to_float8(model) is model
    for unit in (model.up, model.down, model):
        fully_shard(unit, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(4):
        rows = torch.randn(16, 32, generator=torch.Generator().manual_seed(step + 5 * dist.get_rank()))
        loss = model(rows).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    converted = {n: m for n, m in model.named_modules() if "Float8Linear" in type(m).__name__}
    scales = [m.weight._local_tensor._precomputed_scale for m in converted.values()]
    return losses, list(converted), scales


if importlib.util.find_spec("torchao") is not None:
    plain, none, _ = trained_in_float8(False)
    low, converted, scales = trained_in_float8(True)
    assert none == [] and converted == ["up", "down"], converted
    assert all(scale is not None for scale in scales)
    assert low != plain and all(abs(a - b) < 0.05 * plain[0] for a, b in zip(low, plain)), (low, plain)
print("trains alike")
"""


def _testable() -> set[str]:
    """The parts of the helper module that run here: float8 needs torchao, which is no dependency."""
    has_torchao = importlib.util.find_spec("torchao") is not None
    return set(IMPROVEMENT_PARTS) - (set() if has_torchao else {"convert_to_float8"})


def test_improved_models_train_alike_and_keep_their_names(tmp_path: Path) -> None:
    """Nested units, dictionaries of modules, tied weights, inputs that FSDP casts, an order of its own.
    Where torchao is installed, float8 too: by its own kernels, which run on CPUs."""
    (tmp_path / "helper.py").write_text(assemble(frozenset(_testable()), Needs(frozenset(), frozenset())))
    (tmp_path / "job.py").write_text(_JOB)
    forker().run(RankJob("job.py", (), 2, tmp_path, tmp_path / "logs", 100))
    for rank in range(2):
        assert (tmp_path / "logs" / f"rank{rank}.log").read_text().endswith("trains alike\n")
