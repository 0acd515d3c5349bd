"""The plan: each thing of a source has one place in the output, or a reason why not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from checkpoint_convert.errors import LayoutError, UnsupportedError
from checkpoint_convert.items import Items
from checkpoint_convert.model import Contents, DType, OptimizerContents, ParamGroup, SourceFormat
from checkpoint_convert.optim_groups import complete_group
from checkpoint_convert.plan import plan_items
from checkpoint_convert.tied import tied_pairs
from checkpoint_convert.values import dotted
from checkpoint_convert.write_options import OutputFormat, Part, TiedPolicy, WriteOptions
from tests.checkpoint_convert.memory_source import MemorySource, sources
from tests.checkpoint_convert.trained import trained_contents


def keys(items: Items) -> set[str]:
    return {dotted(item.path) for item in items.tensors}


def notices(items: Items) -> dict[str, str]:
    return {notice.code: notice.text for notice in items.notices}


def test_every_input_tensor_is_written_shared_or_left_out_with_a_reason() -> None:
    contents = trained_contents()
    assert contents.optimizer is not None
    names = {f"model.{name}" for name in contents.model} | {"model.head.weight"}
    names |= {f"optim.state.{fqn}.{key}" for fqn, state in contents.optimizer.state.items() for key in state}
    for only in (None, Part.MODEL, Part.OPTIM):
        for to in OutputFormat:
            for tied in TiedPolicy:
                if tied is TiedPolicy.ERROR and only is not Part.OPTIM:
                    continue
                items = plan_items(contents, WriteOptions(to=to, only=only, tied=tied))
                placed = [dotted(item.path) for item in items.tensors]
                placed += [dotted(item.path) for item in items.shared]
                left = [dotted(item.path) for item in items.left_out]
                assert len(placed) == len(set(placed))
                assert not set(placed) & set(left)
                missing = names - {*placed, *left}
                assert missing <= {"model.head.weight"} if only is Part.OPTIM else not missing
                assert all(item.reason for item in items.left_out)


def test_only() -> None:
    contents = trained_contents()
    model = plan_items(contents, WriteOptions(only=Part.MODEL))
    assert all(item.path[0] == "model" for item in model.tensors)
    assert not model.objects
    optim = plan_items(contents, WriteOptions(only=Part.OPTIM))
    assert {item.path[0] for item in optim.tensors} == {"optim"}
    assert {leaf.path[0] for leaf in optim.objects} == {"optim"}
    with pytest.raises(UnsupportedError, match="no optimizer state"):
        plan_items(replace(contents, optimizer=None), WriteOptions(only=Part.OPTIM))
    with pytest.raises(UnsupportedError, match="no model"):
        plan_items(replace(contents, model={}, aliases={}), WriteOptions(only=Part.MODEL))


def test_an_empty_source_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="neither a model nor optimizer"):
        plan_items(Contents(SourceFormat.FULL, {}), WriteOptions())


def test_two_things_with_one_key_are_refused() -> None:
    contents = trained_contents(extras={"a": {"b.c": 1, "b": {"c": 2}}})
    with pytest.raises(LayoutError, match=r"'a\.b\.c'"):
        plan_items(contents, WriteOptions())


def test_extras_named_like_a_part_do_not_collide() -> None:
    items = plan_items(trained_contents(extras={"optim": 1, "model": {"up.weight": 2}}), WriteOptions())
    assert {dotted(leaf.path) for leaf in items.objects} >= {"source_optim", "source_model.up.weight"}


@pytest.mark.parametrize("to", OutputFormat)
def test_tied_policies(to: OutputFormat) -> None:
    contents = trained_contents()
    kept = plan_items(contents, WriteOptions(to=to, tied=TiedPolicy.KEEP))
    first = plan_items(contents, WriteOptions(to=to, tied=TiedPolicy.FIRST))
    if to is OutputFormat.SAFETENSORS:
        assert "model.head.weight" in keys(kept)
    else:
        assert [(item.path[1], item.of[1]) for item in kept.shared] == [("head.weight", "embedding.weight")]
    assert "model.head.weight" not in keys(first)
    assert not first.shared
    assert any(item.path == ("model", "head.weight") for item in first.left_out)
    with pytest.raises(UnsupportedError, match=r"head\.weight and embedding\.weight are tied"):
        plan_items(contents, WriteOptions(to=to, tied=TiedPolicy.ERROR))


def test_tied_names_with_different_values_are_both_written() -> None:
    contents = trained_contents()
    other = MemorySource(torch.zeros(50, 7))
    contents = replace(contents, model={**contents.model, "head.weight": other})
    assert list(tied_pairs(contents)) == [("head.weight", "embedding.weight")]
    items = plan_items(contents, WriteOptions(tied=TiedPolicy.FIRST), unequal_ties=["head.weight"])
    assert {"model.head.weight", "model.embedding.weight"} <= keys(items)
    assert "different values" in notices(items)["CK202"]
    equal = plan_items(contents, WriteOptions(tied=TiedPolicy.FIRST))
    assert "model.head.weight" not in keys(equal)


def test_the_same_source_object_needs_no_comparison() -> None:
    contents = trained_contents()
    same = contents.model["embedding.weight"]
    assert not list(tied_pairs(replace(contents, model={**contents.model, "head.weight": same})))


def test_state_goes_to_the_name_that_the_groups_list() -> None:
    contents = trained_contents()
    optimizer = contents.optimizer
    assert optimizer is not None
    listed = ["head.weight" if name == "embedding.weight" else name for name in optimizer.groups[0].params]
    group = ParamGroup(tuple(listed), optimizer.groups[0].options)
    contents = replace(contents, optimizer=OptimizerContents(optimizer.state, [group]))
    found = keys(plan_items(contents, WriteOptions()))
    assert "optim.state.head.weight.exp_avg" in found
    assert "optim.state.embedding.weight.exp_avg" not in found


def test_missing_state_is_listed_or_filled() -> None:
    contents = trained_contents()
    items = plan_items(contents, WriteOptions())
    assert "frozen" in notices(items)["CK212"]
    assert not any(key.startswith("optim.state.frozen") for key in keys(items))
    assert contents.optimizer is not None
    [group] = contents.optimizer.groups
    for options, said in ((group.options, True), ({"lr": 0.1, "momentum": 0.0}, False)):
        unused = OptimizerContents({}, [ParamGroup(group.params, options)])
        told = notices(plan_items(replace(contents, optimizer=unused), WriteOptions()))
        said_so = "fails: convert with --only model" in told.get("CK212", "")
        assert said_so == said  # plain SGD never has state
    filled = plan_items(contents, WriteOptions(fill_optim_state=True))
    assert "frozen" in notices(filled)["CK211"]
    added = {
        item.path[3]: item.source for item in filled.tensors if item.path[:3] == ("optim", "state", "frozen")
    }
    assert {name: (source.dtype, source.shape) for name, source in added.items()} == {
        "step": (DType.FLOAT32, ()),
        "exp_avg": (DType.FLOAT32, (3,)),
        "exp_avg_sq": (DType.FLOAT32, (3,)),
    }
    assert b"".join(bytes(block) for block in added["exp_avg"].blocks(0, 3)) == bytes(12)


@pytest.mark.parametrize("step", [3, 3.0, torch.tensor([3.0]), torch.tensor(3.0)], ids=repr)
def test_step_becomes_a_scalar_tensor(step: object) -> None:
    value = MemorySource(step) if isinstance(step, torch.Tensor) else step
    contents = Contents(
        SourceFormat.FULL,
        sources({"w": torch.ones(2)}),
        OptimizerContents({"w": {"step": value}}, [ParamGroup(("w",), {"lr": 0.1})]),
    )
    [item] = [item for item in plan_items(contents, WriteOptions()).tensors if item.path[0] == "optim"]
    assert (item.source.shape, item.dtype) == ((), DType.FLOAT32)
    data = b"".join(bytes(block) for block in item.source.blocks(0, 1))
    assert torch.frombuffer(bytearray(data), dtype=torch.float32).item() == 3.0


def test_dtype_converts_floating_model_tensors_only() -> None:
    items = plan_items(trained_contents(), WriteOptions(dtype=DType.FLOAT16))
    by_key = {dotted(item.path): item.dtype for item in items.tensors}
    assert by_key["model.up.weight"] is DType.FLOAT16
    assert by_key["model.table"] is DType.FLOAT16
    assert by_key["model.count"] is DType.INT64
    assert by_key["optim.state.up.weight.exp_avg"] is DType.FLOAT32


def test_dtype_leaves_quantised_weights_and_says_so() -> None:
    contents = Contents(SourceFormat.FULL, sources({"w": torch.ones(2).to(torch.float8_e4m3fn)}))
    items = plan_items(contents, WriteOptions(dtype=DType.BFLOAT16))
    assert items.tensors[0].dtype is DType.FLOAT8_E4M3FN
    assert "w (float8_e4m3fn)" in notices(items)["CK203"]


@pytest.mark.parametrize("options", [WriteOptions(to=OutputFormat.TORCH, shards=2), WriteOptions(shards=0)])
def test_shards_need_a_dcp_directory(options: WriteOptions) -> None:
    with pytest.raises(UnsupportedError, match="--shards"):
        plan_items(trained_contents(), options)


OPTIMIZERS = ["Adadelta", "Adagrad", "Adam", "AdamW", "ASGD", "NAdam", "RMSprop", "Rprop", "SGD"]
OLD = {"Adam": ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable")}
OLD["AdamW"] = ("lr", "betas", "eps", "weight_decay", "amsgrad", "foreach", "maximize", "capturable")
NEWER = {"maximize", "foreach", "differentiable", "fused", "capturable", "decoupled_weight_decay"}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_groups_of_old_optimizers_get_what_the_installed_torch_asks_for(name: str) -> None:
    installed = getattr(torch.optim, name)([torch.nn.Parameter(torch.ones(2))], lr=0.1).defaults
    if name in OLD:  # torch has had a word for it since 2.7
        installed.setdefault("decoupled_weight_decay", name == "AdamW")
    old = {key: installed[key] for key in OLD.get(name, [key for key in installed if key not in NEWER])}
    done = complete_group(old)
    assert done.optimizer == name
    assert dict(done.options) == installed
    assert done.sure
    assert complete_group(installed).filled == ()


def test_adam_and_adamw_that_cannot_be_told_apart_are_said() -> None:
    # The order in which a DCP directory of three ranks lists AdamW's options.
    order = (
        "lr",
        "eps",
        "amsgrad",
        "maximize",
        "differentiable",
        "betas",
        "weight_decay",
        "foreach",
        "capturable",
    )
    installed = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))]).defaults
    done = complete_group({key: installed[key] for key in order})
    assert (done.optimizer, done.sure) == ("AdamW", False)
    assert done.options["decoupled_weight_decay"] is True
    harmless = complete_group({key: 0 if key == "weight_decay" else installed[key] for key in order})
    assert harmless.sure


def test_unknown_optimizers_are_left_alone() -> None:
    done = complete_group({"lr": 0.1, "momentum": 0.9, "muon": True})
    assert (done.optimizer, done.filled) == ("", ())
