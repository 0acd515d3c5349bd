"""What looking at a job must not do to it, nor the job to what is seen of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from fsdp_migrate.verify import rank_server
from fsdp_migrate.verify.probes import between, collectives, products, sketch
from fsdp_migrate.verify.probes.keys import sign_tables
from fsdp_migrate.verify.probes.raw_bytes import raw_bytes
from fsdp_migrate.verify.probes.recorder import Recorder
from fsdp_migrate.verify.probes.session import Session
from fsdp_migrate.verify.probes.shards import Slot
from fsdp_migrate.verify.probes.wrapping import modules_of
from fsdp_migrate.verify.spec import RankFiles


def test_storage_that_was_read_can_be_freed() -> None:
    """FSDP2 frees a gathered parameter by resizing its storage, which `Tensor.numpy` forbids for good."""
    gathered = torch.arange(10.0)
    assert bytes(raw_bytes(gathered)) == gathered.clone().numpy().tobytes()
    between._digests([gathered[2:5]])
    gathered.untyped_storage().resize_(0)
    assert gathered.untyped_storage().size() == 0


@pytest.mark.parametrize("of", [torch.arange(6).view(2, 3).T, torch.empty(2, device="meta")])
def test_bytes_that_are_not_there_are_refused(of: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="bytes of a"):
        raw_bytes(of)


def test_bytes_of_nothing() -> None:
    assert bytes(raw_bytes(torch.empty(0))) == b""


def test_bytes_of_a_list_are_those_of_the_whole() -> None:
    """FSDP1 gathers into a list of pieces on gloo, and into one tensor on NCCL."""
    whole, part = torch.empty(8), torch.empty(2)
    assert collectives._operands((list(whole.chunk(4)), part), {})[2] == 32
    assert collectives._operands((whole, part), {"op": None})[2] == 32
    assert collectives._operands((), {"tensor": part})[1:] == (None, 8)


def test_sketch_is_the_same_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU digests are made by products of floats, which autocast would round."""
    monkeypatch.setattr(products, "_has_whole_number_products", lambda: False)
    values = torch.randn(3 * 4096 + 17, generator=torch.Generator().manual_seed(0))
    slot = Slot("w", (values.numel(),), 0, values.numel(), 0)
    plain = sketch.sketch(slot, values)
    with torch.autocast("cpu", torch.bfloat16):
        assert sketch.sketch(slot, values) == plain
    monkeypatch.undo()
    assert sketch.sketch(slot, values).digest == plain.digest


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_rows_are_multiplied_alike_by_both_libraries(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """Pieces that follow one another in memory, that do not, that are cut, that are zero or very small."""
    flat = torch.randn(700 * 4096, generator=torch.Generator().manual_seed(0)).to(dtype)
    flat[3 * 4096 : 5 * 4096] = 0
    flat[5 * 4096 : 6 * 4096] *= 1e-25
    counts = (3, 2, 1, 255, 300)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    segments = [each.clone() for each in flat[: 64 * 4096].view(2, -1, 4096)]
    segments += flat[: sum(counts) * 4096].view(-1, 4096).split_with_sizes(counts)
    made = products.products(segments, wide)
    monkeypatch.setattr(products, "_has_whole_number_products", lambda: False)
    other = products.products(segments, wide)
    assert (made.bytes_sums == other.bytes_sums).all()
    squares = torch.stack([each.double().square().sum() for each in segments]).tolist()
    rows = torch.cat(segments).double().view(-1, 4, 1024)
    signs = torch.stack(sign_tables(torch.device("cpu"), torch.float64))
    signed = torch.einsum("nsi,si->sn", rows, signs).numpy()
    for each in (made, other):
        assert each.squares.tolist() == pytest.approx(squares, rel=1e-4)
        assert abs(each.signed_sums - signed).max() < 1e-3
    assert squares[3] == 0 and 0 < squares[4] < 1e-40


def test_pieces_that_follow_one_another_are_read_as_one() -> None:
    flat = torch.empty(40 * 4096)
    near = flat.view(-1, 4096).split_with_sizes((10, 4, 26))
    assert [block.counts for block in products._blocks([*near], 16)] == [[10, 4], [26]]
    assert [block.counts for block in products._blocks([near[0], near[2]], 40)] == [[10], [26]]
    (whole,) = products._blocks([*near], 40)
    assert whole.tensor().shape == (40, 4096) and whole.tensor().data_ptr() == flat.data_ptr()


def test_steps_are_counted_in_place(tmp_path: Path) -> None:
    """The next arm in the same process counts from one again."""
    files = RankFiles(tmp_path)
    session = Session(Recorder(tmp_path / "record", 0), 100, files.alive, lambda: None)
    assert files.steps == 0
    for step in (9, 10, 1):
        session.step = step
        session.step_done()
        assert files.steps == step


@pytest.mark.parametrize("shared", [False, True])
def test_modules_are_those_of_torch(shared: bool) -> None:
    inner = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    model = torch.nn.ModuleDict({"a": inner, "b": inner if shared else torch.nn.Sequential(), "c": inner[0]})
    model.register_module("none", None)
    assert modules_of(model) == list(model.modules())


def test_gpus_are_counted_without_touching_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counted_by = []

    def count() -> int:
        counted_by.append(os.getpid())
        return 4

    monkeypatch.setattr(torch.cuda, "device_count", count)
    assert rank_server._gpus() == 4
    assert counted_by == []  # in another process


def test_imports_ask_for_gpus_by_nvml_and_ranks_as_the_user_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        rank_server, "_imported", lambda _: seen.append(os.environ[rank_server._BY_NVML]) or 0
    )
    for before in (None, "0"):
        if before is None:
            monkeypatch.delenv(rank_server._BY_NVML, raising=False)
        else:
            monkeypatch.setenv(rank_server._BY_NVML, before)
        rank_server._preload([])
        assert os.environ.get(rank_server._BY_NVML) == before
    assert seen == ["1", "1"]
