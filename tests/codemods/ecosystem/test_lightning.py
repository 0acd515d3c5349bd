"""Lightning's strategy: left to a person, with a remedy that the real `ModelParallelStrategy` accepts."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from lightning.fabric.strategies import FSDPStrategy as FabricFSDP
from lightning.fabric.strategies import ModelParallelStrategy as FabricModelParallel
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from tool import Result, rewrite_in_place
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

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
    return eval(found.group(1), {"ModelParallelStrategy": cls, "parallelize": lambda model, mesh: model})


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
