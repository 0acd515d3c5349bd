"""Folders of rank files as people keep them: links, files of a trainer beside them, a rank gone or twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from checkpoint_convert.errors import CheckpointError, IncompleteError, LayoutError, UnreadableError
from checkpoint_convert.model import SourceFormat, TensorSource
from checkpoint_convert.readers.open import ReadOptions, open_source
from checkpoint_convert.values import is_tensor
from tests.checkpoint_convert.memory_source import bits

SHAPES = {"a.weight": (3, 4), "a.bias": (3,), "b.weight": (5, 2)}
WHOLE = {name: torch.randn(shape) for name, shape in SHAPES.items()}
UNITS = {"a": ["a.weight", "a.bias"], "b": ["b.weight"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rank 0 and 1 of a job with use_orig_params=False, flat parameters saved as plain tensors."""
    found = tmp_path / "step 3, ü"
    found.mkdir()
    flats = {unit: torch.cat([WHOLE[name].reshape(-1) for name in names]) for unit, names in UNITS.items()}
    for rank in (0, 1):
        shards = {
            f"{unit}._flat_param": torch.nn.functional.pad(flat, (0, flat.numel() % 2)).chunk(2)[rank].clone()
            for unit, flat in flats.items()
        }
        state = {
            number: {"step": torch.tensor(2.0), "exp_avg": shard + 1}
            for number, shard in enumerate(shards.values())
        }
        optimizer = {"state": state, "param_groups": [{"lr": 0.1, "params": [0, 1]}]}
        torch.save({"model": shards, "optim": optimizer}, found / f"rank{rank}.pt")
    return found


@pytest.fixture
def options(tmp_path: Path) -> ReadOptions:
    parameters = [
        {
            "fqn": name,
            "shape": list(shape),
            "stride": list(torch.empty(shape).stride()),
            "dtype": "float32",
            "requires_grad": True,
            "tensor": number,
            "slot": number,
        }
        for number, (name, shape) in enumerate(SHAPES.items())
    ]
    layout = {
        "format": "fsdp-migrate layout",
        "version": 1,
        "torch": "2.6.0",
        "world_size": 2,
        "use_orig_params": False,
        "buffers": [],
        "param_groups": [list(SHAPES)],
        "parameters": parameters,
        "modules": [{"fqn": name, "classes": ["torch.nn.modules.linear.Linear"]} for name in ("", *UNITS)],
        "units": [{"prefix": unit, "members": names} for unit, names in UNITS.items()],
    }
    path = tmp_path / "layout.json"
    path.write_text(json.dumps(layout))
    return ReadOptions(layout_from=path)


def as_it_is(folder: Path) -> list[Path]:
    return [folder]


def other_order(folder: Path) -> list[Path]:
    return [folder / "rank1.pt", folder / "rank0.pt"]


def said_twice(folder: Path) -> list[Path]:
    return [folder / "rank0.pt", folder / "rank1.pt", folder / "rank0.pt"]


def through_links(folder: Path) -> list[Path]:
    (folder / "real").mkdir()
    for rank in (0, 1):
        (folder / f"rank{rank}.pt").rename(folder / "real" / f"{rank}.bin")
        (folder / f"rank{rank}.pt").symlink_to(folder / "real" / f"{rank}.bin")
    linked = folder.parent / "latest"
    linked.symlink_to(folder)
    return [linked]


def holds_itself(folder: Path) -> list[Path]:
    (folder / "again").symlink_to(folder)
    return [folder]


def of_a_trainer(folder: Path) -> list[Path]:
    for name in ("config.json", "trainer_state.json", "events.out.tfevents.1", ".DS_Store", "rank0.pt.tmp"):
        (folder / name).write_text("{}")
    torch.save(Path("x"), folder / "training_args.bin")
    for rank in (0, 1):
        torch.save({"cpu": torch.get_rng_state()}, folder / f"rng_state_{rank}.pth")
    (folder / "gone.txt").symlink_to(folder / "nothing")
    return [folder]


def read(value: object) -> bytes:
    assert is_tensor(value)
    source: TensorSource = value
    return b"".join(map(bytes, source.blocks(0, torch.Size(source.shape).numel())))


@pytest.mark.parametrize(
    "change", [as_it_is, other_order, said_twice, through_links, holds_itself, of_a_trainer]
)
def test_the_model_is_the_same(
    change: Callable[[Path], list[Path]], folder: Path, options: ReadOptions
) -> None:
    with open_source(change(folder), options) as contents:
        assert contents.format is SourceFormat.LOCAL and contents.world_size == 2
        assert list(contents.model) == list(SHAPES)
        for name, tensor in WHOLE.items():
            assert read(contents.model[name]) == bits(tensor)
        assert contents.optimizer is not None
        assert read(contents.optimizer.state["b.weight"]["exp_avg"]) == bits(WHOLE["b.weight"] + 1)


def one_is_gone(folder: Path) -> None:
    (folder / "rank1.pt").unlink()


def one_is_twice(folder: Path) -> None:
    shutil.copy(folder / "rank0.pt", folder / "rank2.pt")


def link_leads_nowhere(folder: Path) -> None:
    (folder / "rank1.pt").unlink()
    (folder / "rank1.pt").symlink_to("moved.pt")


def one_has_no_optimizer(folder: Path) -> None:
    saved = torch.load(folder / "rank1.pt", weights_only=True)
    torch.save({"model": saved["model"]}, folder / "rank1.pt")


def other_size(folder: Path) -> None:
    saved = torch.load(folder / "rank1.pt", weights_only=True)
    saved["model"] = {name: tensor[:-1].clone() for name, tensor in saved["model"].items()}
    torch.save(saved, folder / "rank1.pt")


FAULTS: dict[str, tuple[Callable[[Path], None], type[CheckpointError], str, str]] = {
    "gone": (one_is_gone, LayoutError, "the flat parameter of a has 8", "a rank's share of 2"),
    "twice": (one_is_twice, LayoutError, "the flat parameter of a has 24", "there twice"),
    "link": (link_leads_nowhere, UnreadableError, "is a link to moved.pt, which is not there", "Bring it"),
    "parts": (one_has_no_optimizer, IncompleteError, "rank1.pt holds none", "--only model"),
    "size": (other_size, LayoutError, "the flat parameter of b has 9", "files of one save"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_said(fault: str, folder: Path, options: ReadOptions) -> None:
    change, kind, said, remedy = FAULTS[fault]
    change(folder)
    with pytest.raises(kind) as caught, open_source([folder], options):
        raise AssertionError
    assert said in caught.value.message and remedy in caught.value.hint


def test_the_model_alone_asks_for_no_optimizer(folder: Path, options: ReadOptions) -> None:
    one_has_no_optimizer(folder)
    alone = ReadOptions(layout_from=options.layout_from, use_optimizer=False)
    with open_source([folder], alone) as contents:
        assert list(contents.model) == list(SHAPES) and contents.optimizer is None


def test_hyper_parameters_that_ranks_do_not_agree_on_are_said(folder: Path, options: ReadOptions) -> None:
    saved = torch.load(folder / "rank1.pt", weights_only=True)
    saved["optim"]["param_groups"][0]["lr"] = 0.2
    torch.save(saved, folder / "rank1.pt")
    with open_source([folder], options) as contents:
        assert contents.optimizer is not None and contents.optimizer.groups[0].options["lr"] == 0.1
        said = [notice.text for notice in contents.notices if notice.code == "CK102"]
    assert len(said) == 1 and "param_groups 0's lr differ between ranks; the first rank's" in said[0]
