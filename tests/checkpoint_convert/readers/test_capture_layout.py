"""A layout captured inside the FSDP1 job is the one of the model before it was wrapped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from fsdp1_jobs import Adapter, Block, Mlp, jobs
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from zoo import build

import checkpoint_convert
import fsdp_migrate
from checkpoint_convert.errors import LayoutError
from checkpoint_convert.flat_param import unit_members
from checkpoint_convert.layout import ModelLayout, read_layout, to_json, wrapped_modules
from checkpoint_convert.meta_model import policy_prefixes
from checkpoint_convert.module_layout import layout_of
from checkpoint_convert.readers.layouts import given_layout
from checkpoint_convert.readers.names import FLAT_NAMES, WRAPPERS
from checkpoint_convert.readers.options import ReadOptions

JOBS = {job.name: job for job in jobs()}


def ties(layout: ModelLayout) -> dict[str, str]:
    return layout.aliases()


@pytest.mark.parametrize("name", JOBS)
def test_captured_inside_the_job(fsdp1_files: Path, name: str) -> None:
    job = JOBS[name]
    captured = read_layout(fsdp1_files / name / "layout.json")
    model = build(job.factory)
    if job.dtype is not None:
        model.to(job.dtype)
    plain = layout_of(model, "test")
    # Names, shapes, strides, dtypes and ties; order inside a unit.
    assert {_facts(spec) for spec in captured.parameters} == {_facts(spec) for spec in plain.parameters}
    assert ties(captured) == ties(plain) == {"head.weight": "emb.weight"}
    assert [module.fqn for module in captured.modules] == [module.fqn for module in plain.modules]
    assert captured.buffers == plain.buffers
    prefixes = [path for path, module in model.named_modules() if isinstance(module, Block | Mlp | Adapter)]
    ignored = frozenset(["ign.i.weight", "ign.i.bias"])
    expected = unit_members(plain, prefixes, ignored)
    assert captured.units is not None
    assert {unit.prefix: unit.members for unit in captured.units} == {
        prefix: tuple(dict.fromkeys(ties(plain).get(spec.fqn, spec.fqn) for spec in specs))
        for prefix, specs in expected.items()
    }
    whole = job.strategy.name == "NO_SHARD" or job.world == 1
    inner = "adapter" if job.whole is Adapter else None
    assert all(unit.sharded is not (whole or unit.prefix == inner) for unit in captured.units)
    assert captured.torch_version == torch.__version__
    assert captured.use_orig_params is job.orig
    assert captured.world_size == (2 if name.startswith(("hybrid", "mesh_4")) else job.world)
    assert captured.groups is not None
    trained = {name for group in captured.groups for name in group}
    assert trained == {spec.fqn for spec in plain.unique_parameters()}
    if job.groups:
        assert [all(name.endswith("bias") for name in group) for group in captured.groups] == [True, False]


def _facts(spec: object) -> tuple[object, ...]:
    return tuple(getattr(spec, name) for name in ("fqn", "shape", "stride", "dtype", "requires_grad"))


def test_wrappers_of_a_factory_are_not_in_the_names() -> None:
    """A factory may return blocks that are checkpointed or compiled; what they wrap is the model's."""
    plain, wrapped = build("plain"), build("plain")
    wrapped.blocks[0] = checkpoint_wrapper(wrapped.blocks[0])
    wrapped.blocks[1] = offload_wrapper(wrapped.blocks[1])
    compiled = torch.compile(wrapped)
    assert isinstance(compiled, nn.Module)
    assert layout_of(compiled, "x") == layout_of(plain, "x")
    policy = ModuleWrapPolicy({Block})
    assert policy_prefixes(compiled, policy) == policy_prefixes(plain, policy) == ("blocks.0", "blocks.1")


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_module_that_is_called_like_a_wrapper_is_refused(name: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model.add_module(name, nn.Linear(2, 2))
    with pytest.raises(LayoutError, match=f"has a module called {name}"):
        layout_of(model, "x")


@pytest.mark.parametrize("name", FLAT_NAMES)
def test_a_parameter_that_is_called_like_a_flat_one_is_kept(tmp_path: Path, name: str) -> None:
    model = nn.Linear(2, 2)
    model.register_parameter(name, nn.Parameter(torch.ones(3)))
    captured = checkpoint_convert.capture_layout(model, tmp_path / "layout.json")
    assert [spec.fqn for spec in captured.parameters] == ["weight", "bias", name]


def test_captured_before_wrapping(tmp_path: Path) -> None:
    model = build("plain")
    optimizer = torch.optim.SGD([{"params": [model.bias]}, {"params": model.blocks.parameters()}], lr=0.1)
    path = tmp_path / "layout.json"
    captured = checkpoint_convert.capture_layout(model, path, optimizer)
    assert read_layout(path) == captured
    assert captured.units is None
    assert captured.groups is not None and captured.groups[0] == ("bias",)
    assert read_layout(path).parameters == layout_of(model, "x").parameters
    assert fsdp_migrate.capture_layout is checkpoint_convert.capture_layout


def test_an_optimizer_of_another_model_is_refused() -> None:
    other = torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.1)
    with pytest.raises(LayoutError, match=r"group 0 holds a tensor of shape \(2, 3\)"):
        checkpoint_convert.capture_layout(build("plain"), None, other)


def test_a_layout_survives_its_file(tmp_path: Path) -> None:
    layout = layout_of(build("channels_last"), "x")
    path = tmp_path / "layout.json"
    path.write_text(to_json(layout))
    assert read_layout(path) == layout
    assert len(path.read_text().splitlines()) < len(layout.parameters) + len(layout.modules) + 20


@pytest.mark.parametrize(
    "wrap",
    [
        "zoo:Block,zoo:Mlp,zoo:Adapter",
        "Block, Mlp, Adapter",
        "test_capture_layout:policy",
        "test_capture_layout:function",
    ],
)
def test_policies_in_every_form(wrap: str) -> None:
    layout = given_layout(ReadOptions(model="zoo:plain", wrap=wrap))
    assert layout is not None and layout.units is not None
    expected = {"", "blocks.0", "blocks.0.mlp", "blocks.1", "blocks.1.mlp", "adapter", "frozen"}
    assert {unit.prefix for unit in layout.units} == expected


def _make_policy() -> object:
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return ModuleWrapPolicy({Block, Mlp, Adapter})


policy = _make_policy()


def function(module: nn.Module, recurse: bool, nonwrapped_numel: int) -> bool:
    """A policy of the old kind."""
    return recurse or isinstance(module, Block | Mlp | Adapter)


def test_subclasses_are_wrapped_too() -> None:
    layout = layout_of(nn.Sequential(_Special(3, 2), nn.ReLU()), "x")
    assert wrapped_modules(layout, ["torch.nn.modules.linear:Linear"]) == ("0",)


class _Special(nn.Linear):
    """A kind of linear layer."""


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "layout.json"
    command = [sys.executable, "-m", "fsdp_migrate", "capture-layout", "--model", "tiny_model:TinyModel"]
    command += ["--wrap", "tiny_model:Block", str(out)]
    root = Path(__file__).parents[3]
    corpus = Path(__file__).parent.parent / "old_torch"
    env = {"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"}
    run = subprocess.run(command, cwd=corpus, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "17 parameters" in run.stdout
    layout = read_layout(out)
    assert layout.units is not None and [unit.prefix for unit in layout.units] == ["", "l.0", "l.1", "l.2"]
    again = subprocess.run(command, cwd=corpus, env=env, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "exists already" in again.stderr and "--overwrite" in again.stderr


def test_a_hugging_face_config_is_a_model(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        expected = layout_of(transformers.LlamaForCausalLM(config), "x")
    small = tmp_path / "small.json"
    small.write_bytes((tmp_path / "config.json").read_bytes())
    for path in (tmp_path, tmp_path / "config.json", small):
        if path == small:  # what stands beside it does not count
            (tmp_path / "config.json").write_text('{"model_type": "bert"}')
        layout = given_layout(ReadOptions(model=str(path), wrap="LlamaDecoderLayer"))
        assert layout is not None and layout.units is not None
        assert layout.parameters == expected.parameters
        assert [unit.prefix for unit in layout.units] == ["", "model.layers.0", "model.layers.1"]


CODE = '"auto_map": {"AutoConfig": "evil.Config"}'
CONFIGS = [
    "{}",
    "[",
    '{"model_type": "llama"}',
    '{"model_type": "unheard-of"}',
    '{"model_type": "llama", "architectures": ["AutoTokenizer"]}',
    f'{{"model_type": "of-its-own", "architectures": ["LlamaForCausalLM"], {CODE}}}',
]


@pytest.mark.parametrize("text", CONFIGS)
def test_a_config_that_is_of_no_model(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "evil.py").write_text("raise SystemExit('was run')\n")
    with pytest.raises(LayoutError, match=r"config\.json: transformers cannot build it"):
        given_layout(ReadOptions(model=str(tmp_path)))
