"""Safetensors output: what safetensors and transformers read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from checkpoint_convert.convert import Conversion, ConvertOptions, convert
from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.model import Contents, DType, SourceFormat
from checkpoint_convert.readers.open import open_source
from checkpoint_convert.write_options import OutputFormat, Part, TiedPolicy, WriteOptions
from tests.checkpoint_convert.memory_source import bits, sources
from tests.checkpoint_convert.trained import contents_of, trained, trained_contents


def write(contents: Contents, target: Path, jobs: int = 1, **changes: object) -> Conversion:
    options = ConvertOptions(WriteOptions(to=OutputFormat.SAFETENSORS, **changes), jobs=jobs)
    done = convert(contents, target, options, reopen=lambda path: open_source([path]))
    assert done is not None
    return done


def test_one_file_with_every_tensor_but_the_tied_ones(tmp_path: Path) -> None:
    net, optimizer = trained()
    write(contents_of(net, optimizer), tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    expected = net.state_dict()
    del expected["head.weight"]
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert bits(found[name]) == bits(tensor)
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_the_optimizer_lies_in_a_folder_of_its_own(tmp_path: Path) -> None:
    net, optimizer = trained()
    write(contents_of(net, optimizer), tmp_path / "out", jobs=2)
    names = [name for name, _ in net.named_parameters()]
    packed = optimizer.state_dict()
    found = load_file(tmp_path / "out" / "optimizer" / "optimizer.safetensors")
    expected = {
        f"state.{names[number]}.{key}": tensor
        for number, entry in packed["state"].items()
        for key, tensor in entry.items()
    }
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor)
    [group] = json.loads((tmp_path / "out" / "optimizer" / "param_groups.json").read_text())
    assert group.pop("params") == names
    assert group.pop("betas") == [0.9, 0.999]
    assert group.items() <= packed["param_groups"][0].items()
    write(contents_of(net, optimizer), tmp_path / "model", only=Part.MODEL)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "conversion.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize("jobs", [1, 2])
def test_shards_and_index(tmp_path: Path, jobs: int) -> None:
    net, optimizer = trained()
    write(contents_of(net, optimizer), tmp_path / "out", jobs, file_bytes=800)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    expected = net.state_dict()
    del expected["head.weight"]
    assert set(index["weight_map"]) == set(expected)
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in expected.values())
    count = len(set(index["weight_map"].values()))
    assert count > 2
    for name, file in index["weight_map"].items():
        assert file.endswith(f"-of-{count:05}.safetensors")
        assert bits(load_file(tmp_path / "out" / file)[name]) == bits(expected[name])


def test_tied_keep_writes_both_names(tmp_path: Path) -> None:
    write(trained_contents(), tmp_path / "out", tied=TiedPolicy.KEEP)
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert torch.equal(found["head.weight"], found["embedding.weight"])


def test_names_that_only_claim_to_be_tied_are_both_written(tmp_path: Path) -> None:
    contents = trained_contents()
    other = sources({"head.weight": torch.zeros(50, 7)})
    write(replace(contents, model={**contents.model, **other}), tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert not torch.equal(found["head.weight"], found["embedding.weight"])


def test_what_of_an_optimizers_state_is_no_tensor_is_listed(tmp_path: Path) -> None:
    contents = trained_contents()
    assert contents.optimizer is not None
    first, *_ = contents.optimizer.state
    state = {first: {**contents.optimizer.state[first], "note": "x", "history": [1, 2]}}
    optimizer = replace(contents.optimizer, state={**contents.optimizer.state, **state})
    done = write(replace(contents, optimizer=optimizer), tmp_path / "out")
    left_out = {item.path[3]: item.reason for item in done.items.left_out if item.path[0] == "optim"}
    assert left_out == dict.fromkeys(("note", "history"), "safetensors holds an optimizer's tensors only")
    assert any("note" in notice.text for notice in done.notices)


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.safetensors_name], ids=str)
def test_every_dtype_and_scalars(tmp_path: Path, dtype: DType) -> None:
    raw = torch.randint(2, (12 * dtype.itemsize,), dtype=torch.uint8)
    tensors = {"many": raw.view(getattr(torch, dtype.torch_name)).reshape(3, 4)}
    tensors["scalar"] = tensors["many"][0, 0].clone()
    tensors["weight"] = torch.randn(3)
    write(Contents(SourceFormat.FULL, sources(tensors)), tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert bits(found[name]) == bits(tensor)


def test_a_dtype_that_safetensors_lacks_is_refused(tmp_path: Path) -> None:
    contents = Contents(SourceFormat.FULL, sources({"w": torch.ones(2, dtype=torch.complex128)}))
    with pytest.raises(UnsupportedError, match=r"model\.w is complex128"):
        write(contents, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_transformers_loads_it(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    weights = model.state_dict()
    head = weights.pop("lm_head.weight")
    contents = Contents(
        SourceFormat.FULL, sources(weights, 4096), aliases={"lm_head.weight": "model.embed_tokens.weight"}
    )
    write(contents, tmp_path / "out", file_bytes=4000)
    config.save_pretrained(tmp_path / "out")
    loaded, info = LlamaForCausalLM.from_pretrained(
        tmp_path / "out", output_loading_info=True, torch_dtype=torch.float32
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    for name, tensor in weights.items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    assert torch.equal(loaded.lm_head.weight, head)
    tokens = torch.arange(8)[None]
    assert torch.equal(loaded(tokens).logits, model.eval()(tokens).logits)

    write(contents, tmp_path / "half", dtype=DType.BFLOAT16)
    config.save_pretrained(tmp_path / "half")
    half = LlamaForCausalLM.from_pretrained(tmp_path / "half", torch_dtype=torch.bfloat16)
    for name, tensor in weights.items():
        assert torch.equal(half.state_dict()[name], tensor.bfloat16())
