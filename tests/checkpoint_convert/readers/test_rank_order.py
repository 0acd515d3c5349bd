"""Which rank a file is of, where names do not say it or may be wrong: told by content, said, or refused."""

from __future__ import annotations

import itertools
import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import pad

from checkpoint_convert.errors import AmbiguousFormatError, CheckpointError, IncompleteError
from checkpoint_convert.readers.open import ReadOptions, open_source
from tests.checkpoint_convert.readers.comparing import assert_same_model, assert_same_tensor

State = dict[str, Any]
SHAPES = {"up.weight": (5, 4), "up.bias": (5,), "down.weight": (2, 5), "down.bias": (2,)}
WHOLE = {name: torch.randn(shape) + 3 for name, shape in SHAPES.items()}
FLAT = torch.cat([tensor.reshape(-1) for tensor in WHOLE.values()])  # 37 elements: padded on 2 and 3 ranks


class Model(torch.nn.Module):
    """The parameters of SHAPES; one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(4, 5)
        self.down = torch.nn.Linear(5, 2)


OPTIONS = ReadOptions(model="test_rank_order:Model")


def shards(world: int, flat: torch.Tensor = FLAT) -> list[torch.Tensor]:
    return [shard.clone() for shard in pad(flat, (0, -len(flat) % world)).chunk(world)]


def flat_files(world: int) -> list[State]:
    """use_orig_params=False: plain flat parameters, and the optimizer's state of each."""
    moments = shards(world, FLAT * 2)
    return [
        {
            "model": {"_flat_param": shard},
            "optimizer": {
                "state": {0: {"step": torch.tensor(1.0), "exp_avg": moments[rank]}},
                "param_groups": [{"lr": 0.1, "params": [0]}],
            },
        }
        for rank, shard in enumerate(shards(world))
    ]


def piece_files(world: int) -> list[State]:
    """use_orig_params=True without alignment: each parameter's piece, in one dimension."""
    owner = torch.arange(len(FLAT)) // len(shards(world)[0])
    files: list[State] = [{} for _ in range(world)]
    at = 0
    for name, tensor in WHOLE.items():
        for rank in range(world):
            files[rank][name] = tensor.reshape(-1)[owner[at : at + tensor.numel()] == rank].clone()
        at += tensor.numel()
    return files


def save(folder: Path, files: Sequence[State], names: Sequence[str]) -> list[Path]:
    for name, file in zip(names, files, strict=True):
        torch.save(file, folder / name)
    return [folder / name for name in names]


def check(sources: Sequence[Path], *, optimizer: bool) -> set[str]:
    """Read, compare with what was saved; returns the codes of the notices."""
    with open_source(sources, OPTIONS) as contents:
        assert_same_model(contents, WHOLE)
        if optimizer:
            assert contents.optimizer is not None
            for name, tensor in WHOLE.items():
                found: Any = contents.optimizer.state[name]["exp_avg"]
                assert_same_tensor(found, tensor * 2, name)
        return {notice.code for notice in contents.notices}


LETTERS = {2: ["north.pt", "south.pt"], 3: ["one.pt", "two.pt", "three.pt"]}


@pytest.mark.parametrize(("world", "proven"), [(2, True), (3, False)])
def test_names_without_numbers_are_taken_in_the_order_given(tmp_path: Path, world: int, proven: bool) -> None:
    paths = save(tmp_path, flat_files(world), LETTERS[world])
    codes = check(paths, optimizer=True)
    assert ("CK108" in codes) is not proven
    for sources in ([tmp_path], [tmp_path / "*.pt"]):
        with pytest.raises(AmbiguousFormatError) as caught, open_source(sources, OPTIONS):
            pass
        assert all(str(path) in caught.value.message for path in paths)
        assert "one by one, in the order of the ranks" in caught.value.hint


def test_shards_without_their_padding(tmp_path: Path) -> None:
    """`shard.tensor` of a ShardedTensor ends where the flat parameter does: six ranks have 7, ..., 2, 0."""
    for world in (3, 6):
        files = [{"_flat_param": part} for part in (*FLAT.split(-(-37 // world)), FLAT[:0])[:world]]
        paths = save(tmp_path, files, [f"rank{rank}.pt" for rank in range(world)])
        check(paths, optimizer=False)
    save(tmp_path, files[::-1], [f"rank{rank}.pt" for rank in range(world)])
    with pytest.raises(IncompleteError, match="shards of different sizes"):
        open_source(paths, OPTIONS).__enter__()


def test_one_of_them_alone_asks_for_the_others(tmp_path: Path) -> None:
    paths = save(tmp_path, flat_files(2), LETTERS[2])
    with pytest.raises(CheckpointError, match="has 19 elements") as caught, open_source(paths[:1], OPTIONS):
        pass
    assert "files of all ranks" in caught.value.hint


def test_pieces_without_numbers(tmp_path: Path) -> None:
    assert check(save(tmp_path, piece_files(2), LETTERS[2]), optimizer=False) == set()


@pytest.mark.parametrize("make", [flat_files, piece_files])
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("names", [["rank0.pt", "rank1.pt", "rank2.pt"], ["a.pt", "b.pt", "c.pt"]])
def test_files_in_another_order_are_refused_or_said(
    tmp_path: Path, make: Any, world: int, names: list[str]
) -> None:
    """Padding tells which rank is the last; pieces tell every order."""
    files = make(world)
    for order in itertools.permutations(range(world)):
        paths = save(tmp_path, [files[rank] for rank in order], names[:world])
        if list(order) == sorted(order):
            said = check(paths, optimizer=make is flat_files)
            assert said <= {"CK104", "CK108"} and ("CK108" in said) is (make is flat_files and world == 3)
        elif make is flat_files and order[-1] == world - 1:  # the first two changed places
            with open_source(paths, OPTIONS) as contents:
                assert "CK108" in {notice.code for notice in contents.notices}
        else:
            with pytest.raises(IncompleteError, match="not in order") as caught, open_source(paths, OPTIONS):
                pass
            assert "the rank that its name" in caught.value.hint


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_optimizer_alone(tmp_path: Path, replicas: int) -> None:
    saved = [file["optimizer"] for file in flat_files(2)] * replicas
    for order, right in (([0, 1], True), ([1, 0], False)):
        ordered = [saved[rank] for _ in range(replicas) for rank in order]
        paths = save(tmp_path, ordered, [f"optim_{rank}.pt" for rank in range(2 * replicas)])
        if right:
            with open_source(paths, OPTIONS) as contents:
                assert {notice.code for notice in contents.notices} == {"CK104"}
        else:
            with pytest.raises(IncompleteError, match="exp_avg: the ranks' files are not in order"):
                open_source(paths, OPTIONS).__enter__()


def test_padding_that_is_nowhere_zero_says_nothing(tmp_path: Path) -> None:
    """An optimizer may fill it; then names are believed, and that is said."""
    files = [file["optimizer"] for file in flat_files(2)]
    files[1]["state"][0]["exp_avg"][-1] = 5.0
    paths = save(tmp_path, files, ["optim_0.pt", "optim_1.pt"])
    with open_source(paths, OPTIONS) as contents:
        assert {notice.code for notice in contents.notices} == {"CK104", "CK108"}


def test_the_first_file_has_no_number(tmp_path: Path) -> None:
    """audiocraft's `checkpoint.th`, `checkpoint.th.1`, ...; a file beside those of all ranks stays alone."""
    save(tmp_path, flat_files(3), ["checkpoint.th", "checkpoint.th.1", "checkpoint.th.2"])
    check([tmp_path], optimizer=True)
    two = tmp_path / "two"
    two.mkdir()
    save(two, flat_files(2), ["checkpoint.th", "checkpoint.th.1"])
    check([two], optimizer=True)
    own = tmp_path / "own"
    own.mkdir()
    save(own, [WHOLE, *flat_files(2)], ["model.pt", "model.pt.0", "model.pt.1"])
    with pytest.raises(AmbiguousFormatError, match="two candidates for the model"):
        open_source([own], OPTIONS).__enter__()


def aside_files(told: str, monkeypatch: pytest.MonkeyPatch, folder: Path, order: Sequence[int]) -> list[Path]:
    """Files of three ranks in an order, each with what tells its rank by the way."""
    paths = []
    for name, rank in zip(LETTERS[3], order, strict=True):
        file = flat_files(3)[rank]
        if told == "arguments":
            file["args"] = Namespace(rank=rank, local_rank=0, lora_rank=7)
        elif told == "seed":
            same = torch.Generator().manual_seed(7).get_state()
            file["rng"] = [same, {"cpu": torch.Generator().manual_seed(1234 + rank).get_state()}]
        elif told == "value":
            file["sampler"] = {"state": {"global_rank": rank, "epoch": 3}}
        else:
            monkeypatch.setattr("torch.serialization.location_tag", lambda _, number=rank: f"cuda:{number}")
        paths += save(folder, [file], [name])
    monkeypatch.undo()
    return paths


@pytest.mark.parametrize("told", ["arguments", "value", "seed", "device"])
def test_what_tells_a_rank_by_the_way_confirms_or_refuses_an_order(
    tmp_path: Path, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FSDP1's padding cannot tell the first two of three ranks apart."""
    for order in itertools.permutations(range(3)):
        paths = aside_files(told, monkeypatch, tmp_path, order)
        in_order = [path.name for _, path in sorted(zip(order, paths, strict=True))]
        if list(order) == [0, 1, 2]:
            assert "CK108" not in check(paths, optimizer=True)
        else:
            with pytest.raises(IncompleteError, match="not in order") as caught:
                open_source(paths, OPTIONS).__enter__()
            assert ", ".join(in_order) in caught.value.hint
        with pytest.raises(AmbiguousFormatError) as unnamed:
            open_source([tmp_path], OPTIONS).__enter__()
        assert ", ".join(in_order) in unnamed.value.hint
        numbered = [path.rename(tmp_path / f"rank{at}.pth") for at, path in enumerate(paths)]
        if list(order) != [0, 1, 2]:
            with pytest.raises(IncompleteError, match=r"rank.\.pth is taken for rank"):
                open_source(numbered, OPTIONS).__enter__()
        for path in numbered:
            path.unlink()


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ("0123", ""),
        ("0213", ""),
        ("2301", "should end in"),  # devices allow it, the padding of the last rank does not
        ("1032", "by their tensors' devices"),
        ("0132", "by their tensors' devices"),
        ("0312", "by their tensors' devices"),
    ],
)
def test_devices_of_two_nodes_contradict_what_is_no_order_of_nodes(
    tmp_path: Path, order: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks 0 and 1 on one node, 2 and 3 on the other: two nodes that changed places look as they would."""
    paths = []
    for at, rank in enumerate(map(int, order)):
        monkeypatch.setattr("torch.serialization.location_tag", lambda _, number=rank % 2: f"cuda:{number}")
        paths += save(tmp_path, [flat_files(4)[rank]], [f"rank{at}.pt"])
    monkeypatch.undo()
    if why:
        with pytest.raises(IncompleteError, match=f"not in order.*{why}"):
            open_source(paths, OPTIONS).__enter__()
    else:
        with open_source(paths, OPTIONS) as contents:
            assert "CK108" in {notice.code for notice in contents.notices}


def test_an_order_that_does_not_matter_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages of a pipeline and copies of a model, from devices that were numbered otherwise."""
    names = list(WHOLE)
    stages = [{name: WHOLE[name] for name in half} for half in (names[:2], names[2:])]
    for kind, files in {"stages": stages, "copies": [dict(WHOLE), dict(WHOLE)]}.items():
        (tmp_path / kind).mkdir()
        for number, file in enumerate(files):
            monkeypatch.setattr("torch.serialization.location_tag", lambda _, at=1 - number: f"cuda:{at}")
            save(tmp_path / kind, [file], [f"part_{number}.pt"])
        with open_source([tmp_path / kind]) as contents:
            assert_same_model(contents, WHOLE)
            assert not contents.notices


def test_devices_that_nodes_repeat_tell_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = flat_files(3)
    for device, file, name in zip((0, 1, 0), files, LETTERS[3], strict=True):
        monkeypatch.setattr("torch.serialization.location_tag", lambda _, number=device: f"cuda:{number}")
        save(tmp_path, [file], [name])
    assert "CK108" in check([tmp_path / name for name in LETTERS[3]], optimizer=True)


def test_the_report_says_it(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from fsdp_migrate.cli.app import app

    paths = save(tmp_path, flat_files(3), LETTERS[3])
    command = ["convert-ckpt", *map(str, paths), str(tmp_path / "out"), "--model", OPTIONS.model or ""]
    done = CliRunner().invoke(app, [*command, "--format", "json"])
    assert done.exit_code == 0, done.output
    notices = json.loads(done.stdout)["notices"]
    said = [notice["text"] for notice in notices if notice["code"] == "CK108"]
    assert said and all("one.pt rank 0" in text and "three.pt rank 2" in text for text in said)
