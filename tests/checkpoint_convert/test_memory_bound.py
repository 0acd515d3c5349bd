"""`--max-memory`: what a conversion takes is known before it begins, and kept to or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from checkpoint_convert import memory_bound
from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.items import TensorItem
from checkpoint_convert.memory_bound import held_bytes, jobs_within, needed_bytes, parse_size
from checkpoint_convert.model import BLOCK_BYTES
from checkpoint_convert.readers.open import open_source
from checkpoint_convert.tensor_sources import ConcatTensor, SliceTensor

MIB = 2**20


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1500000000", 1_500_000_000),
        ("2G", 2 * 10**9),
        ("800MiB", 800 * MIB),
        ("1.5 gib", 1536 * MIB),
        ("64k", 64_000),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "many", "0", "-5M", "5 TiB", "1e9"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UnsupportedError, match="is no size"):
        parse_size(text)


@pytest.fixture
def tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TensorItem]:
    """A contiguous, a transposed and a cut tensor, of a process that holds 100 MiB."""
    monkeypatch.setattr(memory_bound, "resident_bytes", lambda: 100 * MIB)
    saved = {"a": torch.zeros(1024, 1024), "b": torch.zeros(2048, 1024).t(), "c": torch.zeros(4)}
    torch.save(saved, tmp_path / "x.pt")
    with open_source([tmp_path / "x.pt"]) as contents:
        return [TensorItem(("model", name), source, source.dtype) for name, source in contents.model.items()]


def test_only_what_lies_in_another_order_is_held(tensors: list[TensorItem]) -> None:
    first, second, _ = (item.source for item in tensors)
    assert held_bytes(first) == 0
    assert held_bytes(second) == 2 * 8 * MIB
    assert held_bytes(SliceTensor(second, 5, (3,))) == 2 * 8 * MIB
    assert held_bytes(ConcatTensor([first, second], first.dtype, (3 * 2**20,))) == 2 * 8 * MIB


def test_threads_are_given_up_before_it_is_refused(tensors: list[TensorItem]) -> None:
    one = needed_bytes(tensors, 3, 1, verify=False)
    assert one == (100 + 16 + 16) * MIB + 4 * BLOCK_BYTES
    assert needed_bytes(tensors, 3, 4, verify=False) - one == 3 * 4 * BLOCK_BYTES
    assert jobs_within(one + 12 * BLOCK_BYTES, tensors, 3, 4, verify=False) == 4
    assert jobs_within(one + 9 * BLOCK_BYTES, tensors, 3, 4, verify=False) == 3
    assert jobs_within(one, tensors, 3, 4, verify=False) == 1
    with pytest.raises(UnsupportedError, match=r"model\.b is stored in another order") as refused:
        jobs_within(one - 1, tensors, 3, 4, verify=False)
    assert refused.value.hint == "allow 134MiB"
    with pytest.raises(UnsupportedError) as refused:
        jobs_within(one, tensors, 3, 1, verify=True)
    assert "--no-verify" in refused.value.hint
