"""Lightning's strategy: left to a person, with a remedy that the real `ModelParallelStrategy` accepts."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
from lightning.fabric.strategies import FSDPStrategy as FabricFSDP
from lightning.fabric.strategies import ModelParallelStrategy as FabricModelParallel
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from tool import Result, rewrite_in_place
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

from fsdp_migrate.demo.ranks import PRELOAD, RankForker, RankJob

IMPORTS = """\
from datetime import timedelta

import lightning as L
from lightning.fabric.strategies import FSDPStrategy as FabricFSDP
from lightning.pytorch.strategies import FSDPStrategy
from model import Block

"""


def rewritten(folder: Path, call: str) -> tuple[Result, str]:
    path = folder / "train.py"
    path.write_text(f"{IMPORTS}strategy = {call}\n")
    result = rewrite_in_place(folder)
    return result, result.lines[-1].strip()


def strategy_of(remedy: str, cls: type) -> object:
    found = re.search(r"`(ModelParallelStrategy\(.*?\))`, and", remedy)
    assert found is not None
    return eval(
        found.group(1),
        {"ModelParallelStrategy": cls, "parallelize": lambda model, mesh: model, "world_size": 2},
    )


@pytest.mark.parametrize(
    ("call", "options", "distributed"),
    [
        ("FSDPStrategy()", set(), False),
        (
            "FSDPStrategy(auto_wrap_policy={Block}, sharding_strategy='SHARD_GRAD_OP')",
            {"reshard_after_forward"},
            False,
        ),
        ("FSDPStrategy(state_dict_type='sharded', cpu_offload=True)", {"offload_policy"}, True),
        ("FabricFSDP()", set(), True),
        ("FabricFSDP(state_dict_type='full', mixed_precision=mp)", {"mp_policy"}, False),
    ],
)
def test_the_remedy_is_code_that_lightning_and_torch_accept(
    tmp_path: Path, call: str, options: set[str], distributed: bool
) -> None:
    result, remedy = rewritten(tmp_path, call)
    assert result.open_codes == ["FM630"]
    fabric = call.startswith("Fabric")
    strategy = strategy_of(remedy, FabricModelParallel if fabric else ModelParallelStrategy)
    assert strategy._save_distributed_checkpoint is distributed  # type: ignore[attr-defined]
    assert strategy._tensor_parallel_size == 1  # type: ignore[attr-defined]
    said = re.search(r"`fully_shard\(module, (.*?)\)` on ", remedy)
    assert said is not None
    given = set(re.findall(r"(\w+)=", re.sub(r"\(.*?\)", "", said.group(1)))) - {"mesh"}
    assert given == options
    assert given | {"mesh"} <= set(inspect.signature(fully_shard).parameters)
    assert ("configure_model" in remedy) is not fabric


def test_what_the_remedies_rest_on_holds_in_the_installed_lightning() -> None:
    """Defaults that the manual page names, and the classes the remedies use."""
    assert inspect.signature(FSDPStrategy).parameters["state_dict_type"].default == "full"
    assert inspect.signature(FabricFSDP).parameters["state_dict_type"].default == "sharded"
    for cls in (ModelParallelStrategy, FabricModelParallel):
        parameters = inspect.signature(cls).parameters
        assert parameters["tensor_parallel_size"].default == "auto"
        assert parameters["save_distributed_checkpoint"].default is True
    assert CPUOffloadPolicy().pin_memory
    assert MixedPrecisionPolicy().param_dtype is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("FSDPStrategy(sharding_strategy='NO_SHARD')", 'strategy="ddp"'),
        ("FSDPStrategy(sharding_strategy='HYBRID_SHARD', device_mesh=(2, 4))", "init_device_mesh"),
        ("FabricFSDP(timeout=timedelta(seconds=3))", "timeout=timedelta(seconds=3)"),
        ("FSDPStrategy(activation_checkpointing_policy={Block})", "after `apply_activation_checkpointing`"),
    ],
)
def test_layouts_and_options_are_spoken_of(tmp_path: Path, call: str, words: str) -> None:
    result, remedy = rewritten(tmp_path, call)
    assert result.open_codes == ["FM630"]
    assert words in remedy


def test_a_strategy_asked_for_by_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import lightning as L\nfrom lightning.fabric import Fabric\n\n"
        'trainer = L.Trainer(strategy="fsdp")\nfabric = Fabric(strategy="fsdp_cpu_offload")\n'
        'other = L.Trainer(strategy="ddp")\n'
    )
    result = rewrite_in_place(tmp_path)
    assert result.open_codes == ["FM631", "FM631"]
    assert "offload_policy=CPUOffloadPolicy()" in result.lines[-1]


def test_types_given_to_lightning_stay_torchs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nfrom lightning.pytorch.strategies import FSDPStrategy\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from torch.distributed.fsdp import MixedPrecision\n\n"
        "precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)\n"
        "strategy = FSDPStrategy(mixed_precision=precision)\n\n\n"
        "def wrap(model):\n    return FSDP(model)\n"
    )
    result = rewrite_in_place(tmp_path)
    assert sorted(result.open_codes) == ["FM202", "FM630"]
    text = (tmp_path / "train.py").read_text()
    assert "precision = MixedPrecision(param_dtype" in text
    assert "from torch.distributed.fsdp import" in text
    assert "MixedPrecision" not in text.split("fsdp2_sharding")[-1] or "fsdp2_sharding" not in text


MODEL = """\
import lightning as L
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.tanh(self.inner(x))


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.blocks = nn.Sequential(Block(), Block())
        self.last = nn.Linear(8, 1)
        self.losses = []

    def forward(self, x):
        return self.last(self.blocks(self.first(x)))

    def training_step(self, batch, index):
        x, y = batch
        loss = ((self(x) - y) ** 2).mean()
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        self.losses.append(((self(batch[0]) - batch[1]) ** 2).mean().item())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)
"""
TRAIN = """\
import lightning as L
import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch.utils.data import DataLoader, TensorDataset

from model import Block, Regression

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
module = Regression()
trainer = L.Trainer(
    accelerator="cpu",
    devices=2,
    strategy=STRATEGY,
    max_steps=4,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(module, DataLoader(data, batch_size=4, shuffle=False), DataLoader(data, batch_size=16))
"""
STRATEGIES = {
    "units by class": "FSDPStrategy(auto_wrap_policy={Block}, state_dict_type='sharded')",
    "kept unsharded": "FSDPStrategy(auto_wrap_policy={Block}, sharding_strategy='SHARD_GRAD_OP')",
    "by name": "'fsdp'",
}


def project_of(folder: Path, strategy: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(MODEL)
    (folder / "train.py").write_text(TRAIN.replace("STRATEGY", strategy))
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Result, Result, Any, Any]]:
    """Name -> what the rewrite said, what a second one said, and what both programs' ranks saw."""
    folder = tmp_path_factory.mktemp("lightning")
    said, programs = {}, []
    for number, (name, strategy) in enumerate(STRATEGIES.items()):
        before = project_of(folder / f"before{number}", strategy)
        after = project_of(folder / f"after{number}", strategy)
        said[name] = (rewrite_in_place(after), rewrite_in_place(after))
        programs += [before, after]
    worker = Path(__file__).with_name("lightning_worker.py")
    scripts = tuple(str(program / "train.py") for program in programs)
    with RankForker((*PRELOAD, "lightning.pytorch")) as forker:
        forker.run(RankJob(str(worker), scripts, 2, folder, folder / "logs", timeout_s=200))
    found = {program.name: [program / f"rank{rank}.json" for rank in range(2)] for program in programs}
    assert all(path.exists() for paths in found.values() for path in paths)
    seen = {name: [json.loads(path.read_text()) for path in paths] for name, paths in found.items()}
    return {
        name: (*said[name], seen[f"before{number}"], seen[f"after{number}"])
        for number, name in enumerate(STRATEGIES)
    }


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_trainer_that_can_be_seen_trains_as_before(
    name: str, trained: dict[str, tuple[Result, Result, Any, Any]]
) -> None:
    result, again, old, new = trained[name]
    assert (result.codes, result.open_codes) == (["FM632"], [])
    assert again.codes == []
    assert "FullyShardedDataParallel" in old[0]["kinds"]
    assert "FSDPRegression" in new[0]["kinds"]
    assert ("FSDPBlock" in new[0]["kinds"]) is ("Block}" in STRATEGIES[name])
    assert [rank["losses"] for rank in new] == [rank["losses"] for rank in old]
    assert len(new[0]["losses"]) > 4 and new[0]["losses"] != new[1]["losses"]


LEFT = {
    "devices=2": ("devices=-1", "decided at run time"),
    "max_steps=4": ("max_steps=4, precision='bf16-mixed'", "precision"),
    "STRATEGY": ("FSDPStrategy(cpu_offload=True)", "`cpu_offload`"),
    "module = Regression()": ("module = make()", "was not found"),
}


@pytest.mark.parametrize("old", LEFT)
def test_what_cannot_be_seen_is_left_with_its_reason(old: str, tmp_path: Path) -> None:
    new, reason = LEFT[old]
    folder = project_of(tmp_path / "project", "FSDPStrategy(auto_wrap_policy={Block})")
    text = TRAIN.replace(old, new).replace("STRATEGY", "FSDPStrategy(auto_wrap_policy={Block})")
    (folder / "train.py").write_text(text)
    result = rewrite_in_place(folder)
    assert result.open_codes == ["FM630"]
    assert reason in result.lines[0]
    assert "configure_model" not in (folder / "model.py").read_text()


def test_a_module_that_shards_itself_is_kept(tmp_path: Path) -> None:
    folder = project_of(tmp_path / "project", "FSDPStrategy()")
    forward = "    def forward(self, x):\n        return self.last"
    own = "    def configure_model(self):\n        fully_shard(self.blocks[0])\n\n"
    model = MODEL.replace(forward, own + forward)
    (folder / "model.py").write_text("from torch.distributed.fsdp import fully_shard\n" + model)
    assert rewrite_in_place(folder).codes == ["FM632"]
    assert (folder / "model.py").read_text().count("fully_shard") == 2
    assert "ModelParallelStrategy(" in (folder / "train.py").read_text()
