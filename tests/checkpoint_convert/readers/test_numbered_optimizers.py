"""Whole models beside optimizers that number their parameters: each number is the right one's, or refused."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch import nn

from checkpoint_convert.errors import IncompleteError, LayoutError
from checkpoint_convert.readers.open import ReadOptions, open_source
from tests.checkpoint_convert.readers.comparing import assert_same_model, assert_same_tensor

State = dict[str, Any]


class Model(nn.Module):
    """Two matrices of one size, two vectors of one size."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.down = nn.Linear(4, 4)


class Nested(nn.Module):
    """The same in a module of a trainer's."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.ModuleDict({"model": Model()})


WEIGHTS = {name: torch.randn_like(value) for name, value in Model().state_dict().items()}
NAMES = list(WEIGHTS)


def numbered(groups: Sequence[Sequence[str]], **options: Sequence[Any]) -> State:
    """An optimizer's state as torch numbers it, through the groups; options have a value for each group."""
    order = [name for group in groups for name in group]
    at = iter(range(len(order)))
    return {
        "state": {
            n: {"step": torch.tensor(1.0), "exp_avg": WEIGHTS[name] * 2} for n, name in enumerate(order)
        },
        "param_groups": [
            {"params": [next(at) for _ in group], **{key: value[n] for key, value in options.items()}}
            for n, group in enumerate(groups)
        ],
    }


def read(path: Path, options: ReadOptions) -> list[list[str]]:
    """Names per group; the state of each must be that of its name."""
    with open_source([path], options) as contents:
        assert contents.optimizer is not None
        for name, entry in contents.optimizer.state.items():
            found: Any = entry["exp_avg"]
            assert_same_tensor(found, WEIGHTS[name] * 2, name)
        assert not contents.notices
        return [sorted(group.params) for group in contents.optimizer.groups]


@pytest.mark.parametrize("options", [ReadOptions(), ReadOptions(model=f"{__name__}:Model")])
def test_groups_of_a_whole_optimizer_are_right_or_refused(tmp_path: Path, options: ReadOptions) -> None:
    """torch counts through the groups, so that sizes that fit the model's order prove nothing."""
    right = refused = 0
    for order, cut in itertools.product(itertools.permutations(NAMES), range(1, len(NAMES))):
        groups = order[:cut], order[cut:]
        if any(list(group) != sorted(group, key=NAMES.index) for group in groups):
            continue  # within a group the order is the model's
        torch.save({"model": WEIGHTS, "optimizer": numbered(groups, lr=(1.0, 2.0))}, tmp_path / "ckpt.pt")
        try:
            assert read(tmp_path / "ckpt.pt", options) == [sorted(group) for group in groups]
            right += 1
        except LayoutError as error:
            assert "--param-groups" in error.hint
            refused += 1
        given = ReadOptions(model=options.model, param_groups=groups)
        assert read(tmp_path / "ckpt.pt", given) == [sorted(group) for group in groups]
    assert (right, refused) == (2, 12)  # matrices and vectors, in both orders


def test_other_evidence_for_groups(tmp_path: Path) -> None:
    """A weight decay that only matrices have, names beside the numbers, or numbers that are the model's."""
    path = tmp_path / "ckpt.pt"
    matrices, vectors = NAMES[::2], NAMES[1::2]
    reverse = [["down.bias"], ["up.weight", "up.bias", "down.weight"]]
    named = numbered(reverse, param_names=reverse)
    rekeyed = numbered([NAMES]) | {"param_groups": [{"params": [1, 3]}, {"params": [0, 2]}]}
    for saved, groups in (
        (numbered([matrices, vectors], weight_decay=(0.1, 0.0)), [matrices, vectors]),
        (named, reverse),
        (rekeyed, [vectors, matrices]),
    ):
        torch.save({"model": WEIGHTS, "optimizer": saved}, path)
        assert read(path, ReadOptions()) == [sorted(group) for group in groups]


def test_another_name_before_all_names_is_said(tmp_path: Path) -> None:
    """Lightning's files have the names of the LightningModule, which holds the model."""
    longer = {f"net.model.{name}": value for name, value in WEIGHTS.items()}
    torch.save({"state_dict": longer, "optimizer_states": [numbered([NAMES])]}, tmp_path / "last.ckpt")
    with pytest.raises(LayoutError, match=r"such as up\.weight, is in the checkpoint") as caught:
        open_source([tmp_path / "last.ckpt"], ReadOptions(model=f"{__name__}:Model")).__enter__()
    assert "ModuleDict({'net': torch.nn.ModuleDict({'model': model})})" in caught.value.hint
    with open_source([tmp_path / "last.ckpt"], ReadOptions(model=f"{__name__}:Nested")) as contents:
        assert contents.optimizer is not None and list(contents.optimizer.state) == list(longer)


def rank_files(folder: Path, world: int, **more: Sequence[Any]) -> None:
    """Every rank saved the whole model, and its optimizer's state of the one flat parameter."""
    flat = torch.cat([value.flatten() * 2 for value in WEIGHTS.values()])
    shards = nn.functional.pad(flat, (0, -len(flat) % world)).chunk(world)
    for rank, shard in enumerate(shards):
        state = {"exp_avg": shard.clone(), **{key: value[rank] for key, value in more.items()}}
        saved = {"state": {0: state}, "param_groups": [{"lr": 0.1, "params": [0]}]}
        torch.save({"model": WEIGHTS, "optimizer": saved}, folder / f"rank{rank}.pt")


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_that_all_saved_the_whole_model_and_their_own_optimizer(tmp_path: Path, world: int) -> None:
    rank_files(tmp_path, world)
    with open_source([tmp_path], ReadOptions(model=f"{__name__}:Model")) as contents:
        assert contents.optimizer is not None and set(contents.model) == set(NAMES)
        for name in NAMES:
            found: Any = contents.optimizer.state[name]["exp_avg"]
            assert_same_tensor(found, WEIGHTS[name] * 2, name)
        assert {notice.code for notice in contents.notices} <= {"CK104", "CK108"}
    (tmp_path / "rank0.pt").unlink()
    kind, said = (LayoutError, "one rank's share") if world == 2 else (IncompleteError, "of all ranks")
    with pytest.raises(kind) as caught:
        open_source([tmp_path], ReadOptions(model=f"{__name__}:Model")).__enter__()
    assert said in caught.value.hint


def test_the_model_alone_asks_nothing_of_the_optimizers_beside_it(tmp_path: Path) -> None:
    """Two of three ranks' files: of the optimizer a share is missing, of the model nothing."""
    rank_files(tmp_path, 3)
    (tmp_path / "rank1.pt").unlink()
    with pytest.raises(IncompleteError, match=r"rank 1 of 3 is missing"):
        open_source([tmp_path], ReadOptions(model=f"{__name__}:Model")).__enter__()
    with open_source([tmp_path], ReadOptions(use_optimizer=False)) as contents:
        assert_same_model(contents, WEIGHTS)
        assert contents.optimizer is None and not contents.notices


@pytest.mark.parametrize(("name", "said"), [("step", "different moments"), ("RMS", "a statistic of each")])
def test_a_number_that_ranks_have_not_in_common(tmp_path: Path, name: str, said: str) -> None:
    rank_files(tmp_path, 2, **{name: [1.0, 2.0]})
    with pytest.raises(IncompleteError, match=f"{name} is 1.0 on rank 0 and 2.0 on rank 1") as caught:
        open_source([tmp_path], ReadOptions(model=f"{__name__}:Model")).__enter__()
    assert said in caught.value.hint


@pytest.mark.parametrize(
    ("key", "values", "refused"),
    [
        ("iteration", (3, 4), r"iteration is 3 in .*rank0\.pt and 4 in .*rank1\.pt"),
        ("scheduler", ({"last_epoch": 3}, {"last_epoch": 4}), "scheduler.last_epoch is 3"),
        ("sampler", ({"epoch": 3}, {"epoch": 4}), ""),
    ],
)
def test_a_save_that_was_cut_short(tmp_path: Path, key: str, values: Sequence[Any], refused: str) -> None:
    """Some ranks wrote over their files and others did not; the state of Lion or SGD counts no steps."""
    rank_files(tmp_path, 2)
    for rank in range(2):
        path = tmp_path / f"rank{rank}.pt"
        torch.save(torch.load(path) | {"model": {"_flat_param": torch.ones(20)}, key: values[rank]}, path)
    options = ReadOptions(model=f"{__name__}:Model")
    if refused:
        with pytest.raises(IncompleteError, match=refused):
            open_source([tmp_path], options).__enter__()
    else:
        with open_source([tmp_path], options) as contents:
            assert contents.extras[key] == dict(enumerate(values))


class Layers(nn.Sequential):
    """Twelve alike."""

    def __init__(self) -> None:
        super().__init__(*(nn.Linear(3, 3, bias=False) for _ in range(12)))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("form", ["safetensors", "dcp", "torch"])
def test_only_a_state_dict_has_the_order_of_the_model(tmp_path: Path, form: str, groups: int) -> None:
    """Sorted names put layer 10 before layer 2, and all layers are of one size."""
    model = Layers().state_dict()
    if form == "safetensors":
        save_file(model, tmp_path / "model.safetensors")
    elif form == "dcp":
        dcp.save({"model": dict(sorted(model.items()))}, checkpoint_id=tmp_path / "model", no_dist=True)
    else:
        torch.save(model, tmp_path / "model.pt")
    names = list(model)
    listed = [{"params": list(range(12))}, {"params": []}][:groups]
    state = {number: {"exp_avg": model[name] * 2} for number, name in enumerate(names)}
    torch.save({"state": state, "param_groups": listed}, tmp_path / "optimizer.pt")
    options = ReadOptions(model=f"{__name__}:Layers")
    if form != "torch":
        with pytest.raises(LayoutError, match="kept by parameter numbers"):
            open_source([tmp_path]).__enter__()
    for given in (options, ReadOptions()) if form == "torch" else (options,):
        with open_source([tmp_path], given) as contents:
            assert contents.optimizer is not None and not contents.loadable_as_is
            for name in names:
                found: Any = contents.optimizer.state[name]["exp_avg"]
                assert_same_tensor(found, model[name] * 2, name)
