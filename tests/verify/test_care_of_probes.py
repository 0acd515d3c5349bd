"""What looking at a job must not do to it, nor the job to what is seen of it."""

from __future__ import annotations

import os

import pytest
import torch

from fsdp_migrate.verify import rank_server
from fsdp_migrate.verify.probes import between, collectives, products, sketch
from fsdp_migrate.verify.probes.raw_bytes import raw_bytes
from fsdp_migrate.verify.probes.shards import Slot


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
