"""Each rank's rows of the parameters as plain tensors: read by the model's shapes, else refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from checkpoint_convert.errors import AmbiguousFormatError, CheckpointError, LayoutError, UnsupportedError
from checkpoint_convert.readers.open import ReadOptions, open_source
from tests.checkpoint_convert.readers.comparing import assert_same_model, assert_same_tensor

State = dict[str, Any]
OPTIONS = ReadOptions(model="test_slices:Model")
SHAPES = {"up.weight": (6, 3), "up.bias": (6,), "norm.weight": (2,), "down.weight": (4, 6)}
WHOLE = {name: torch.randn(shape) for name, shape in SHAPES.items()}
BUFFERS = {"count": torch.tensor(3), "norm.mean": torch.arange(5.0)}


class Model(torch.nn.Module):
    """The parameters of SHAPES."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(3, 6)
        self.norm = torch.nn.Module()
        self.norm.weight = torch.nn.Parameter(torch.zeros(2))
        self.down = torch.nn.Linear(6, 4, bias=False)


def rows(world: int, rank: int) -> State:
    """What fairseq2's `fsdp1_local_state_dict` gives: `torch.chunk`'s rows, or an empty tensor."""
    found = {}
    for name, tensor in WHOLE.items():
        chunks = tensor.chunk(world)
        found[name] = chunks[rank].clone() if rank < len(chunks) else torch.empty(0)
    return {**found, **BUFFERS}


def as_torch(folder: Path, state: State, rank: int) -> None:
    torch.save(state, folder / f"sdp_{rank:02d}.pt")


def as_safetensors(folder: Path, state: State, rank: int) -> None:
    held = {name: tensor for name, tensor in state.items() if tensor.numel()}
    save_file(held, folder / f"rank-{rank}.safetensors")


Save = Callable[[Path, State, int], None]


@pytest.mark.parametrize("save", [as_torch, as_safetensors])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_rows_become_the_model(tmp_path: Path, world: int, save: Save) -> None:
    for rank in range(world):
        save(tmp_path, rows(world, rank), rank)
    with open_source([tmp_path], OPTIONS) as contents:
        assert_same_model(contents, {**WHOLE, **BUFFERS})
        assert contents.world_size == world
        # Ranks 0 and 1 have the same numbers of rows of each parameter.
        assert {notice.code for notice in contents.notices} == {"CK108"}
    with pytest.raises((UnsupportedError, AmbiguousFormatError)) as caught, open_source([tmp_path]):
        pass
    assert "--model" in caught.value.hint


def test_with_fsdp1s_own_optimizer_state_beside(tmp_path: Path) -> None:
    """Its pieces are of the flat parameter, not rows: 50 elements in the root's order, 25 on each rank."""
    order = ["up.weight", "up.bias", "norm.weight", "down.weight"]
    flat = torch.cat([WHOLE[name].reshape(-1) for name in order])
    owner = torch.arange(len(flat)) // (len(flat) // 2)
    for rank in (0, 1):
        as_torch(tmp_path, rows(2, rank), rank)
        state, at = {}, 0
        for number, name in enumerate(order):
            numel = WHOLE[name].numel()
            piece = flat[at : at + numel][owner[at : at + numel] == rank].clone()
            if piece.numel():
                state[number] = {"step": torch.tensor(2.0), "exp_avg": piece}
            at += numel
        groups = [{"lr": 0.1, "params": [0, 1, 2, 3]}]
        torch.save({"state": state, "param_groups": groups}, tmp_path / f"optim_{rank:02d}.pt")
    with open_source([tmp_path], OPTIONS) as contents:
        assert_same_model(contents, {**WHOLE, **BUFFERS})
        assert contents.optimizer is not None
        for name, tensor in WHOLE.items():
            found: Any = contents.optimizer.state[name]["exp_avg"]
            assert_same_tensor(found, tensor, name)


def test_rows_of_which_a_rank_has_none_are_not_what_rank0_only_leaves(tmp_path: Path) -> None:
    """The last rank has rows of most parameters only; the first one's are not the model."""
    for rank, names in enumerate([list(SHAPES), list(SHAPES)[:3]]):
        as_torch(tmp_path, {name: WHOLE[name].chunk(2)[rank].clone() for name in names}, rank)
    with pytest.raises(CheckpointError, match="without saying of what"):
        open_source([tmp_path]).__enter__()


def swapped(states: list[State]) -> None:
    states[0], states[2] = states[2], states[0]


def one_is_gone(states: list[State]) -> None:
    states.pop()


def one_parameter_is_gone(states: list[State]) -> None:
    for state in states:
        del state["down.weight"]


def of_another_size(states: list[State]) -> None:
    states[1]["up.weight"] = torch.zeros(2, 4)


FAULTS: dict[str, tuple[Callable[[list[State]], None], str]] = {
    "order": (swapped, r"rank 0 holds norm\.weight in size \(0,\); of \(2,\) on 3 ranks size \(1,\) is due"),
    "gone": (one_is_gone, r"rank 0 holds up\.weight in size \(2, 3\); .* size \(3, 3\) is due"),
    "parameter": (one_parameter_is_gone, r"holds no down\.weight"),
    "size": (of_another_size, r"rank 1 holds up\.weight in size \(2, 4\)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_rows_that_are_not_the_models(tmp_path: Path, fault: str) -> None:
    change, said = FAULTS[fault]
    states = [rows(3, rank) for rank in range(3)]
    change(states)
    for rank, state in enumerate(states):
        as_torch(tmp_path, state, rank)
    with pytest.raises(LayoutError, match=said) as caught, open_source([tmp_path], OPTIONS):
        pass
    assert "model that was saved" in caught.value.hint


def test_whole_checkpoints_that_differ_are_still_refused(tmp_path: Path) -> None:
    for step in (1, 2):
        torch.save({name: tensor + step for name, tensor in WHOLE.items()}, tmp_path / f"step_{step}.pt")
    for options in (None, OPTIONS):
        with pytest.raises(CheckpointError, match="2 whole checkpoints that differ"):
            open_source([tmp_path], options).__enter__()


def test_two_models_in_one_folder_of_safetensors(tmp_path: Path) -> None:
    save_file(WHOLE, tmp_path / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in WHOLE.items()}, tmp_path / "ema.safetensors")
    with pytest.raises(AmbiguousFormatError, match=r"two candidates .*ema\.safetensors.*model\.safetensors"):
        open_source([tmp_path]).__enter__()
    with open_source([tmp_path / "ema.safetensors"]) as contents:
        assert_same_model(contents, {name: tensor + 1 for name, tensor in WHOLE.items()})
