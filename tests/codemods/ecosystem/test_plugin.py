"""`FullyShardedDataParallelPlugin(...)` in Python: the real class accepts the result and means the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tool import Result, rewrite_in_place
from torch import nn

from ecosystem.launched import environment, of_plugin

IMPORTS = {
    "functools": "import functools",
    "accelerate.": "import accelerate",
    "torch.": "import torch",
    "FullyShardedDataParallelPlugin": "from accelerate import FullyShardedDataParallelPlugin",
    "BackwardPrefetch": "from torch.distributed.fsdp import BackwardPrefetch",
    "CPUOffload": "from torch.distributed.fsdp import CPUOffload",
    "MixedPrecision": "from torch.distributed.fsdp import MixedPrecision",
    "ShardingStrategy": "from torch.distributed.fsdp import ShardingStrategy",
    "StateDictType": "from torch.distributed.fsdp import StateDictType",
    "FullStateDictConfig": "from torch.distributed.fsdp import FullStateDictConfig",
    "FullOptimStateDictConfig": "from torch.distributed.fsdp import FullOptimStateDictConfig",
    "transformer_auto_wrap_policy": "from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy",
    "Block": "from model import Block, Other",
}


def program(call: str) -> str:
    """A module that makes `plugin`, with the imports that the call needs."""
    imports = [line for name, line in IMPORTS.items() if name in call.replace("'Block'", "")]
    return "\n".join(imports) + f"\n\nplugin = {call}\n"


class Block(nn.Module):
    pass


class Other(nn.Module):
    pass


def rewritten(folder: Path, call: str, *options: str) -> Result:
    (folder / "model.py").write_text(
        "from torch import nn\n\n\nclass Block(nn.Module):\n    pass\n\n\nclass Other(Block):\n    pass\n"
    )
    (folder / "train.py").write_text(program(call))
    return rewrite_in_place(folder, list(options))


def plugin(source: str) -> Any:
    import sys
    import types

    model = types.ModuleType("model")
    model.Block, model.Other = Block, Other  # type: ignore[attr-defined]
    sys.modules["model"] = model
    made: dict[str, Any] = {}
    try:
        with environment({}):
            exec(source, made)
    finally:
        del sys.modules["model"]
    return made["plugin"]


POLICY = "functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block, Other})"


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "sharding_strategy=ShardingStrategy.FULL_SHARD",
        "sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True",
        "\n    sharding_strategy='SHARD_GRAD_OP',\n    backward_prefetch=BackwardPrefetch.BACKWARD_PRE,  # "
        "early\n",
        "cpu_offload=CPUOffload(offload_params=True), limit_all_gathers=True",
        "cpu_offload=CPUOffload(), forward_prefetch=False",
        "cpu_offload=True, fsdp_version=1",
        "state_dict_type=StateDictType.SHARDED_STATE_DICT",
        "state_dict_type='full_state_dict', activation_checkpointing=True",
        "auto_wrap_policy='transformer_based_wrap', transformer_cls_names_to_wrap=['Block']",
        "auto_wrap_policy='size_based_wrap', min_num_params=2000",
        "use_orig_params=True, forward_prefetch=True",
        "reshard_after_forward='SHARD_GRAD_OP'",
        "reshard_after_forward='FULL_SHARD', sharding_strategy='SHARD_GRAD_OP'",
    ],
)
def test_the_plugin_means_the_same(tmp_path: Path, arguments: str) -> None:
    call = f"FullyShardedDataParallelPlugin({arguments})"
    before = plugin(program(call))
    assert before.fsdp_version == 1
    result = rewritten(tmp_path, call)
    assert result.open_codes == []
    source = (tmp_path / "train.py").read_text()
    after = plugin(source)
    assert after.fsdp_version == 2
    assert of_plugin(after) == of_plugin(before)
    assert ("early" in source) is ("# early" in arguments)
    again = rewrite_in_place(tmp_path)
    assert again.open_codes == []
    assert (tmp_path / "train.py").read_text() == source


def test_a_policy_of_classes_becomes_their_names(tmp_path: Path) -> None:
    result = rewritten(tmp_path, f"FullyShardedDataParallelPlugin(auto_wrap_policy={POLICY})")
    assert result.open_codes == []
    after = plugin((tmp_path / "train.py").read_text())
    assert sorted(after.transformer_cls_names_to_wrap) == ["Block", "Other"]
    assert of_plugin(after)["policy"] == "transformer_auto_wrap_policy"


def test_mixed_precision_keeps_its_dtypes_and_says_what_ends(tmp_path: Path) -> None:
    precision = (
        "MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16)"
    )
    result = rewritten(tmp_path, f"FullyShardedDataParallelPlugin(mixed_precision_policy={precision})")
    assert result.open_codes == []
    assert result.codes.count("FM622") == 1
    policy = plugin((tmp_path / "train.py").read_text()).mixed_precision_policy
    assert (policy.param_dtype, policy.reduce_dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize(
    ("policy", "precision", "notes"),
    [
        ("", "'bf16'", 1),
        ("", "'fp16'", 1),
        ("", "'no'", 0),
        ("mixed_precision_policy=MixedPrecision(param_dtype=torch.bfloat16)", "'bf16'", 0),
    ],
)
def test_buffers_that_the_accelerators_precision_no_longer_casts_are_told(
    tmp_path: Path, policy: str, precision: str, notes: int
) -> None:
    result = rewritten(
        tmp_path,
        f"FullyShardedDataParallelPlugin({policy})\n"
        f"accelerator = accelerate.Accelerator(mixed_precision={precision}, fsdp_plugin=plugin)",
    )
    assert result.open_codes == []
    assert result.codes.count("FM622") == notes


def test_the_state_dict_configuration_stays_and_the_optimizers_goes(tmp_path: Path) -> None:
    call = (
        "FullyShardedDataParallelPlugin(state_dict_config=FullStateDictConfig(offload_to_cpu=False, "
        "rank0_only=False), "
        "optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=False))"
    )
    result = rewritten(tmp_path, call)
    assert result.open_codes == []
    source = (tmp_path / "train.py").read_text()
    after = plugin(source)
    assert (after.state_dict_config.offload_to_cpu, after.state_dict_config.rank0_only) == (False, False)
    assert "FullOptimStateDictConfig" not in source


@pytest.mark.parametrize(
    "arguments",
    [
        "sharding_strategy=ShardingStrategy.HYBRID_SHARD",
        "sharding_strategy=ShardingStrategy.NO_SHARD",
        "sharding_strategy=chosen()",
        "state_dict_type=StateDictType.LOCAL_STATE_DICT",
        "auto_wrap_policy=lambda module, recurse, nonwrapped_numel: True",
        "mixed_precision_policy=precision",
        "cpu_offload=offload",
        "param_init_fn=lambda module: module.to_empty(device='cuda')",
        "**settings",
    ],
)
def test_what_needs_a_person_stays_fsdp1(tmp_path: Path, arguments: str) -> None:
    call = f"FullyShardedDataParallelPlugin({arguments})"
    result = rewritten(tmp_path, call)
    assert result.open_codes == ["FM621"]
    text = (tmp_path / "train.py").read_text()
    assert f"plugin = {call}\n" in text
    assert "# TODO(fsdp-migrate FM621): " in text
    assert "fsdp2_sharding" not in text
    assert rewrite_in_place(tmp_path).open_codes == ["FM621"]
    assert (tmp_path / "train.py").read_text() == text


def test_precision_that_others_use_is_left_in_both_places(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nfrom accelerate import FullyShardedDataParallelPlugin\nfrom torch.distributed.fsdp "
        "import MixedPrecision\n\n"
        "precision = MixedPrecision(param_dtype=torch.bfloat16)\n"
        "plugin = FullyShardedDataParallelPlugin(mixed_precision_policy=precision)\nprint(precision)\n"
    )
    assert rewrite_in_place(tmp_path).open_codes == ["FM202", "FM621"]


ELSEWHERE = {
    "a dictionary": (
        "options = {\n    'sharding_strategy': 'SHARD_GRAD_OP',\n    'use_orig_params': True,\n"
        "    'state_dict_type': 'SHARDED_STATE_DICT',  # small files\n}\n",
        "**options",
    ),
    "a dictionary on the spot": ("", "**{'sharding_strategy': 'FULL_SHARD', 'cpu_offload': True}"),
    "a dictionary of what goes": (
        "options = {'use_orig_params': True, 'limit_all_gathers': True}\n",
        "**options",
    ),
    "dict(...)": (
        "options = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, forward_prefetch=False)\n",
        "**options",
    ),
    "a strategy in a variable": ("how = ShardingStrategy.SHARD_GRAD_OP\n", "sharding_strategy=how"),
    "offload in a variable": ("offload = CPUOffload(offload_params=True)\n", "cpu_offload=offload"),
    "a policy in a variable": (f"policy = {POLICY}\n", "auto_wrap_policy=policy, use_orig_params=True"),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_arguments_written_elsewhere_mean_the_same(tmp_path: Path, name: str) -> None:
    before, arguments = ELSEWHERE[name]
    call = f"FullyShardedDataParallelPlugin({arguments})"
    imports = [line for word, line in IMPORTS.items() if word in before + call]
    source = "\n".join(imports) + f"\n\n{before}plugin = {call}\n"
    rewritten(tmp_path, call)
    (tmp_path / "train.py").write_text(source)
    old = of_plugin(plugin(source)) if "policy" not in name else None
    result = rewrite_in_place(tmp_path)
    assert result.open_codes == []
    after = (tmp_path / "train.py").read_text()
    new = plugin(after)
    assert new.fsdp_version == 2
    assert old is None or of_plugin(new) == old
    if "policy" in name:
        assert sorted(new.transformer_cls_names_to_wrap) == ["Block", "Other"]
    assert "torch.distributed.fsdp import" not in after
    assert ("# small files" in after) is ("# small files" in source)
    assert rewrite_in_place(tmp_path).codes == []


def test_precision_in_a_variable_of_its_own_becomes_a_policy(tmp_path: Path) -> None:
    rewritten(tmp_path, "None")
    source = (
        "import torch\nfrom accelerate import FullyShardedDataParallelPlugin\n"
        "from torch.distributed.fsdp import MixedPrecision\n\n"
        "bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)\n"
        "plugin = FullyShardedDataParallelPlugin(mixed_precision_policy=bf16)\n"
    )
    (tmp_path / "train.py").write_text(source)
    assert rewrite_in_place(tmp_path).open_codes == []
    policy = plugin((tmp_path / "train.py").read_text()).mixed_precision_policy
    assert (type(policy).__name__, policy.param_dtype, policy.reduce_dtype) == (
        "MixedPrecisionPolicy",
        torch.bfloat16,
        torch.float32,
    )


@pytest.mark.parametrize(
    "before",
    [
        "options = {'use_orig_params': True}\nprint(options)\n",
        "options = {'use_orig_params': True}\noptions['forward_prefetch'] = True\n",
        "key = 'use_orig_params'\noptions = {key: True}\n",
    ],
)
def test_a_dictionary_that_others_use_is_left(tmp_path: Path, before: str) -> None:
    rewritten(tmp_path, "None")
    source = f"{IMPORTS['FullyShardedDataParallelPlugin']}\n\n{before}"
    source += "plugin = FullyShardedDataParallelPlugin(**options)\n"
    (tmp_path / "train.py").write_text(source)
    assert rewrite_in_place(tmp_path).open_codes == ["FM621"]
