"""What the rules rest on, in the installed Accelerate and Transformers; a new setting that no rule owns fails
here."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.constants import FSDP_SHARDING_STRATEGY
from accelerate.utils.fsdp_utils import fsdp2_apply_ac, fsdp2_prepare_auto_wrap_policy
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from transformers import TrainingArguments
from transformers.trainer_utils import FSDPOption

from codemods.configuration import accelerate, settings, trainer
from codemods.editing import accelerate_plugin


def test_every_fsdp_flag_of_the_launcher_is_owned() -> None:
    flags = {
        option.removeprefix("--fsdp_")
        for action in launch_command_parser()._actions
        for option in action.option_strings
        if option.startswith("--fsdp_")
    }
    assert "sharding_strategy" in flags
    assert flags <= accelerate.KNOWN


def test_every_argument_of_the_plugin_is_owned() -> None:
    owned = (*accelerate_plugin.GONE, *accelerate_plugin.KEPT, *accelerate_plugin.DECIDED)
    assert {field.name for field in fields(FullyShardedDataParallelPlugin)} == set(owned)
    assert len(owned) == len(set(owned))


def test_every_word_and_setting_of_the_trainer_is_owned() -> None:
    assert {option.value for option in FSDPOption} == trainer.WORDS
    source = inspect.getsource(TrainingArguments._process_fsdp_args)
    read = {
        node.args[0].value
        for node in ast.walk(ast.parse(textwrap.dedent(source)))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("get", "setdefault")
        and ast.unparse(node.func.value) == "self.fsdp_config"
        and isinstance(node.args[0], ast.Constant)
    }
    assert {"version", "reshard_after_forward", "auto_wrap_policy"} <= read
    assert read <= trainer.KNOWN


def test_accelerate_prepares_one_model_together_with_its_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = Accelerator(cpu=True)
    monkeypatch.setattr(Accelerator, "is_fsdp2", property(lambda _: True))
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    for given in ((model,), (optimizer,), (model, optimizer, nn.Linear(2, 2))):
        with pytest.raises(ValueError, match="FSDP2"):
            accelerator.prepare(*given)
    with pytest.raises(ValueError, match="requires a model and an optimizer"):
        accelerator.prepare_model(model)
    assert accelerator.prepare_model(model, evaluation_mode=True) is model


def test_strategies_have_the_numbers_of_accelerate() -> None:
    assert tuple(FSDP_SHARDING_STRATEGY) == settings.STRATEGIES


def test_size_based_units_count_all_parameters() -> None:
    """FM606: FSDP1 counts what no unit below holds; Accelerate's FSDP2 everything."""
    model = nn.Sequential(nn.Sequential(nn.Linear(10, 10, bias=False), nn.Linear(10, 10, bias=False)))
    plugin = SimpleNamespace(auto_wrap_policy=size_based_auto_wrap_policy, min_num_params=150)
    policy = fsdp2_prepare_auto_wrap_policy(plugin, model)
    assert [policy(module) for module in model.modules()] == [True, True, False, False]


def test_policies_other_than_by_class_or_size_make_one_unit() -> None:
    """FM621: a function of one's own is not called."""
    plugin = SimpleNamespace(auto_wrap_policy=lambda module, recurse, nonwrapped_numel: True)
    assert fsdp2_prepare_auto_wrap_policy(plugin, nn.Linear(2, 2)) is None


def test_recomputation_with_dropout_gives_other_gradients() -> None:
    """FM608: Accelerate's FSDP2 checkpoints with `preserve_rng_state=False`, its FSDP1 did not."""
    assert "checkpoint_wrapper(layer, preserve_rng_state=False)" in inspect.getsource(fsdp2_apply_ac)

    def gradient(**how: bool) -> torch.Tensor:
        torch.manual_seed(0)
        layer = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.Linear(64, 8))
        model = checkpoint_wrapper(layer, **how) if how else layer
        torch.manual_seed(1)
        model(torch.ones(4, 64)).sum().backward()
        found = layer[0].weight.grad
        assert found is not None
        return found

    assert torch.equal(gradient(preserve_rng_state=True), gradient())
    assert not torch.equal(gradient(preserve_rng_state=False), gradient())
