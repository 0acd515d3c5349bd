"""Digests do not depend on the sharding, records are put together whole, limits are what they say."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.distance import difference
from fsdp_migrate.verify.model import Difference
from fsdp_migrate.verify.noise import RoundingSource, added_otherwise, entry_limit, measured_limits
from fsdp_migrate.verify.probes import perturb
from fsdp_migrate.verify.probes.keys import byte_keys, byte_sums_as_floats
from fsdp_migrate.verify.probes.perturb import nudge
from fsdp_migrate.verify.probes.recorder import Recorder
from fsdp_migrate.verify.probes.shards import Slot, clean_name
from fsdp_migrate.verify.probes.sketch import Sketch, sketch, sketches
from fsdp_migrate.verify.read import read_arm
from fsdp_migrate.verify.whole import assemble, moved

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def flat_slots(shape: tuple[int, int], cuts: list[int]) -> list[Slot]:
    """The tensor cut into contiguous stretches at these flat indices."""
    edges = [0, *sorted(cuts), math.prod(shape)]
    return [Slot("w", shape, 0, b - a, a) for a, b in itertools.pairwise(edges) if b > a]


def box_slots(shape: tuple[int, int], column: int) -> list[Slot]:
    """The tensor cut into a left and a right part."""
    rows, columns = shape
    boxes = [((0, 0), (rows, column)), ((0, column), (rows, columns - column))]
    return [
        Slot("w", shape, 0, math.prod(size), None, (offset, size))
        for offset, size in boxes
        if math.prod(size)
    ]


def local(slot: Slot, full: torch.Tensor) -> torch.Tensor:
    if slot.box is None:
        assert slot.start is not None
        return full.reshape(-1)[slot.start : slot.start + slot.numel]
    (row, column), (rows, columns) = slot.box
    return full[row : row + rows, column : column + columns].reshape(-1)


def assert_same_digests(parts: list[Sketch], whole: Sketch) -> None:
    assert sum(part.digest for part in parts) % (1 << 64) == whole.digest
    assert sum(part.further for part in parts) % (1 << 64) == whole.further


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.data(), st.sampled_from(DTYPES), st.integers(0, 1 << 30))
def test_sums_of_parts_are_the_sums_of_the_whole(
    rows: int, columns: int, data: st.DataObject, dtype: torch.dtype, seed: int
) -> None:
    shape = (rows, columns)
    full = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
    whole = sketch(Slot("w", shape, 0, full.numel(), 0), full.reshape(-1))
    cuts = data.draw(st.lists(st.integers(0, rows * columns), max_size=3))
    for slots in (flat_slots(shape, cuts), box_slots(shape, data.draw(st.integers(0, columns)))):
        parts = [sketch(slot, local(slot, full)) for slot in slots]
        assert_same_digests(parts, whole)
        assert math.isclose(sum(part.square for part in parts), whole.square, rel_tol=1e-12)
        assert np.allclose(np.sum([part.projections for part in parts], axis=0), whole.projections)
    changed = full.clone()
    changed[data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))] += 1
    assert sketch(Slot("w", shape, 0, full.numel(), 0), changed.reshape(-1)).digest != whole.digest


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 30_000), st.data(), st.sampled_from(DTYPES))
def test_sums_of_long_stretches_are_those_of_their_parts(
    numel: int, data: st.DataObject, dtype: torch.dtype
) -> None:
    """Whole rows are read otherwise than their ends, and again otherwise where elements lie apart."""
    shape = (2, numel)
    full = torch.randn(shape, generator=torch.Generator().manual_seed(numel), dtype=torch.float64).to(dtype)
    whole = sketch(Slot("w", shape, 0, full.numel(), 0), full.reshape(-1))
    cuts = data.draw(st.lists(st.integers(0, 2 * numel), max_size=2))
    for slots in (flat_slots(shape, cuts), box_slots(shape, data.draw(st.integers(0, numel)))):
        parts = sketches([(slot, local(slot, full)) for slot in slots])
        assert_same_digests(parts, whole)
        assert math.isclose(sum(part.square for part in parts), whole.square, rel_tol=1e-5)
        together = np.sum([part.projections for part in parts], axis=0)
        assert np.allclose(together, whole.projections, atol=1e-5 * math.sqrt(whole.square))


def test_no_change_of_one_or_two_bytes_of_a_row_is_missed() -> None:
    """Two bytes change by a and b unseen only if a times the keys of one place is -b times the other's."""
    keys = byte_keys(torch.device("cpu")).numpy().astype(int)
    assert keys.shape == (2, 8 * 4096) and keys.all()
    directions = keys // np.gcd.reduce(keys, axis=0) * np.sign(keys[0])
    assert len(np.unique(directions[:, : 4 * 4096], axis=1).T) == 4 * 4096
    _, place = np.unique(keys, axis=1, return_inverse=True)  # of wider elements two places have the same
    pairs = np.argsort(place.reshape(-1), kind="stable").reshape(-1, 2)
    assert (pairs[:, 0] % 8 != pairs[:, 1] % 8).all()  # so that elements that change places are seen


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool], ids=str)
def test_bytes_are_summed_alike_on_every_device(dtype: torch.dtype) -> None:
    """Products of floats give what products of whole numbers do, also of the largest bytes and keys."""
    random = torch.randint(-128, 128, (5, 4096 * dtype.itemsize), dtype=torch.int8)
    for rows in (random, torch.full_like(random, -128)):
        for keys in (byte_keys(rows.device)[:, : rows.shape[1]].T, torch.full((rows.shape[1], 2), 127)):
            exact = rows.to(torch.int64) @ keys.to(torch.int64)
            for precision in ("highest", "high", "medium"):
                torch.set_float32_matmul_precision(precision)
                assert torch.equal(byte_sums_as_floats(rows, keys), exact)
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_swaps_that_one_digest_misses_are_found_by_two(tmp_path: Path, dtype: torch.dtype) -> None:
    """Elements that change places, where one digest has the same key for the bytes that differ."""
    keys = byte_keys(torch.device("cpu"))[0, :: dtype.itemsize][:4096]  # of every element's first byte
    slot = Slot("w", (2, 4096), 0, 2 * 4096, 0)
    for number in range(1, 7):
        left, right = torch.nonzero(keys == number).reshape(-1)[:2].tolist()
        full = torch.zeros(2 * 4096, dtype=dtype)
        first_bytes = full.view(torch.uint8)[:: dtype.itemsize]
        first_bytes[left], first_bytes[right] = 3, 200
        apart = full.clone()
        apart[[left, right]] = full[[right, left]]
        one, other = sketch(slot, full), sketch(slot, apart)
        assert one.digest == other.digest and one.further != other.further
        for arm, values in (("one", full), ("other", apart)):
            kept(tmp_path / f"{number}" / arm, 0, slot, values, 0)
        found = [tmp_path / f"{number}" / arm for arm in ("one", "other")]
        assert difference(*(assemble(read_arm(each).tensors(1, "weight")["w"]) for each in found)) is not None


@pytest.mark.parametrize("name", ["one row", "scaled", "shifted", "noise", "two signs"])
def test_projections_tell_the_size_of_a_difference(name: str) -> None:
    full = torch.randn(96, 1024, generator=torch.Generator().manual_seed(1))
    apart = full.clone()
    match name:
        case "one row":
            apart[17] = 0
        case "scaled":
            apart *= 1 + 1e-5
        case "shifted":
            apart += 1e-3
        case "noise":
            apart += 1e-6 * torch.randn(96, 1024, generator=torch.Generator().manual_seed(2))
        case "two signs":
            apart[3, 5:7] *= -1
    slot = Slot("w", (96, 1024), 0, full.numel(), 0)
    one, other = sketch(slot, full.reshape(-1)), sketch(slot, apart.reshape(-1))
    assert one.digest != other.digest
    estimate = math.dist(one.projections, other.projections)
    assert float((apart.double() - full.double()).norm()) / 3 < estimate
    assert estimate < 3 * float((apart.double() - full.double()).norm()) + 1e-6 * math.sqrt(one.square)


@pytest.mark.parametrize("size", [1e-30, 1e25])
def test_squares_leave_the_range_of_float32(size: float) -> None:
    values = torch.full((3 * 4096,), size)
    assert sketch(Slot("w", (3 * 4096,), 0, 3 * 4096, 0), values).square == pytest.approx(
        3 * 4096 * float(values[0]) ** 2, rel=1e-6
    )


def test_only_small_tensors_of_a_large_quantity_are_kept_in_full(tmp_path: Path) -> None:
    sizes = {"small": 4096, "large": 1 << 20}
    stretches = [(Slot(n, (size,), 0, size, 0), torch.ones(size)) for n, size in sizes.items()]
    for name, every_element, step, kept_names in (
        ("sums", False, 1, ["small"]),
        ("elements", True, 1, ["small", "large"]),
        ("start", False, 0, ["small", "large"]),
    ):
        recorder = Recorder(tmp_path / name / "rank0", 1 << 30, every_element=every_element)
        recorder.event("start", rank=0, ranks=1, torch="2", pid=1)
        recorder.tensors(step, "weight", stretches)
        recorder.close()
        parts = read_arm(tmp_path / name).tensors(step, "weight")
        assert [each for each in sizes if parts[each][0].stored is not None] == kept_names
        assert assemble(parts["large"]).complete


def test_record_of_a_large_model_is_no_copy_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsdp_migrate.verify.probes.recorder.START_BYTES", 5 << 20)
    for name, size, is_kept in (("medium", 1 << 20, True), ("large", 1 << 21, False)):
        recorder = Recorder(tmp_path / name / "rank0", 1 << 30)
        recorder.tensors(0, "weight", [(Slot("w", (size,), 0, size, 0), torch.ones(size))])
        recorder.close()
        assert (read_arm(tmp_path / name).tensors(0, "weight")["w"][0].stored is not None) == is_kept


def test_large_weights_move_only_if_they_do(tmp_path: Path) -> None:
    """Initial weights are kept in full and later ones as sums."""
    names = ("trained", "frozen", "moved once")
    recorder = Recorder(tmp_path / "rank0", 1 << 30)
    recorder.event("start", rank=0, ranks=1, torch="2", pid=1)
    slots = [Slot(name, (1 << 20,), 0, 1 << 20, 0) for name in names]
    for step in range(3):
        values = [torch.full((1 << 20,), each) for each in (1.0 + step, 1.0, 1.0 + (step > 0))]
        recorder.tensors(step, "weight", list(zip(slots, values, strict=True)))
        facts = {"losses": [], "reductions": [], "reduce_dtypes": [], "inputs": [], "clips": []}
        recorder.event("step", step=step, collectives={}, seconds=1.0, probe_seconds=0.0, **facts)
    recorder.close()
    assert moved(read_arm(tmp_path)) == {"trained": True, "frozen": False, "moved once": True}


def test_what_was_taken_is_as_it_was(tmp_path: Path) -> None:
    """Gradients are clipped in place between being taken and being written."""
    values = {"small": torch.ones(10), "large": torch.ones(1 << 20)}
    slots = {name: Slot(name, (len(each),), 0, len(each), 0) for name, each in values.items()}
    recorder = Recorder(tmp_path / "rank0", 1 << 30)
    before = recorder.taken([(slots[name], each) for name, each in values.items()])
    again = recorder.taken([(slots[name], each) for name, each in values.items()])
    assert all(a.same(b) for a, b in zip(before, again, strict=True))
    for each in values.values():
        each[-1] = 2
    after = recorder.taken([(slots[name], each) for name, each in values.items()])
    assert not any(a.same(b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("full_limit_bytes", [1 << 20, 0], ids=["in full", "sketched"])
def test_record_of_three_ranks_is_put_together(tmp_path: Path, full_limit_bytes: int) -> None:
    full = torch.randn(7, 5).to(torch.bfloat16)
    apart = full.clone()
    apart[6, 4] += 1
    for arm, values in (("one", full), ("other", apart)):
        for rank, slot in enumerate(flat_slots((7, 5), [9, 20])):
            recorder = Recorder(tmp_path / arm / f"rank{rank}", full_limit_bytes)
            recorder.event("start", rank=rank, ranks=3, torch="2", pid=1)
            recorder.tensors(1, "weight", [(slot, local(slot, values))])
            recorder.close()
    one, other = (assemble(read_arm(tmp_path / arm).tensors(1, "weight")["w"]) for arm in ("one", "other"))
    assert one.complete and not one.replicas_differ
    assert difference(one, one) is None
    found = difference(one, other)
    assert found is not None
    max_abs, relative, _, _, index = found
    expected = float(
        (apart.double() - full.double()).norm() / max(full.double().norm(), apart.double().norm())
    )
    assert relative == pytest.approx(expected, rel=1e-6)  # one changed element: a sketch is exact
    if full_limit_bytes:
        assert index == (6, 4)
        assert max_abs == float(apart[6, 4].double() - full[6, 4].double())


def kept(folder: Path, rank: int, slot: Slot, values: torch.Tensor, limit: int) -> None:
    """Record one tensor's part on one rank."""
    recorder = Recorder(folder / f"rank{rank}", limit)
    recorder.event("start", rank=rank, ranks=2, torch="2", pid=1)
    recorder.tensors(1, "weight", [(slot, values)])
    recorder.close()


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64, torch.bool], ids=str)
def test_elements_are_compared_with_sums(tmp_path: Path, dtype: torch.dtype) -> None:
    """A rank that keeps as much as it may sketches the rest, and arms and ranks need not agree on which."""
    full = (torch.randn(6, 5) * 3).to(dtype)
    apart = full.clone()
    apart[5, 4] = not full[5, 4] if dtype is torch.bool else full[5, 4] + 2
    for arm, values, limits in (
        ("full", full, (99, 0)),
        ("equal", full, (0, 0)),
        ("apart", apart, (0, 1000)),
    ):
        slots = box_slots((6, 5), 2) if arm == "equal" else flat_slots((6, 5), [13])
        for rank, slot in enumerate(slots):
            kept(tmp_path / arm, rank, slot, local(slot, values), limits[rank])
    wholes = {
        arm: assemble(read_arm(tmp_path / arm).tensors(1, "weight")["w"])
        for arm in ("full", "equal", "apart")
    }
    assert difference(wholes["full"], wholes["equal"]) is None
    found = difference(wholes["full"], wholes["apart"])
    assert found is not None
    norm = max(full.double().norm(), apart.double().norm())
    assert found[1] == pytest.approx(float((apart.double() - full.double()).norm() / norm), rel=1e-6)


@pytest.mark.parametrize("limit", [1000, 0], ids=["in full", "sketched"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.uint16, torch.uint32], ids=str)
def test_last_element_of_any_dtype_is_compared(tmp_path: Path, dtype: torch.dtype, limit: int) -> None:
    full = torch.arange(30).reshape(6, 5).to(dtype)
    apart = full.clone()
    apart[5, 4] = 1j if dtype.is_complex else 1
    for arm, values in (("full", full), ("apart", apart)):
        for rank, slot in enumerate(box_slots((6, 5), 2)):
            kept(tmp_path / arm, rank, slot, local(slot, values), limit)
    one, other = (assemble(read_arm(tmp_path / arm).tensors(1, "weight")["w"]) for arm in ("full", "apart"))
    assert one.complete and one.shape == ((6, 5, 2) if dtype.is_complex else (6, 5))
    assert difference(one, one) is None
    found = difference(one, other)
    assert found is not None
    assert not limit or found[4][:2] == (5, 4)


def test_replicas_kept_in_full_and_as_sums_are_equal(tmp_path: Path) -> None:
    for rank, limit in enumerate((1000, 0)):
        kept(tmp_path, rank, Slot("w", (4,), 0, 4, 0), torch.arange(4.0), limit)
    assert assemble(read_arm(tmp_path).tensors(1, "weight")["w"]).replicas_differ == ()


def test_replicas_that_differ_are_named(tmp_path: Path) -> None:
    for rank in range(3):
        recorder = Recorder(tmp_path / f"rank{rank}", 1 << 20)
        recorder.event("start", rank=rank, ranks=3, torch="2", pid=1)
        values = torch.full((4,), 2.0 if rank == 2 else 1.0)
        recorder.tensors(0, "weight", [(Slot("w", (4,), 0, 4, 0), values)])
        recorder.close()
    whole = assemble(read_arm(tmp_path).tensors(0, "weight")["w"])
    assert whole.replicas_differ == (2,)
    assert whole.complete


def test_nudge_changes_every_element_by_its_size() -> None:
    values = torch.linspace(1, 2, 1000)
    changed = values.clone()
    nudge(changed, 2.0**-10)
    ratio = changed / values - 1
    assert torch.allclose(ratio.abs(), torch.full_like(ratio, 2.0**-10), rtol=1e-3)
    assert 300 < int((ratio > 0).sum()) < 700
    again = values.clone()
    nudge(again, 2.0**-10)
    assert torch.equal(changed, again)


def test_nudge_in_pieces_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(50, 20, generator=torch.Generator().manual_seed(1))
    for layout in (values, values.T):
        for of_sums in (False, True):
            whole, pieces = layout.clone(), layout.clone()
            nudge(whole, 2.0**-10, of_sums=of_sums)
            with monkeypatch.context() as patch:
                patch.setattr(perturb, "_CHUNK", 64)
                nudge(pieces, 2.0**-10, of_sums=of_sums)
            assert torch.allclose(whole, pieces, rtol=1e-6, atol=0) and not torch.equal(whole, layout)


def test_nudge_of_sums_changes_small_elements_as_much_as_others_and_zeros_not_at_all() -> None:
    values = torch.cat([torch.linspace(1, 2, 1000), torch.full((10,), 1e-9), torch.zeros(10)])
    changed = values.clone()
    nudge(changed, 2.0**-10, of_sums=True)
    by = (changed - values).abs()
    usual = float(values.square().mean().sqrt()) * 2.0**-10
    assert float(by[:1010].min()) == pytest.approx(usual, rel=1e-3)
    assert float(by[999]) == pytest.approx(2 * 2.0**-10, rel=1e-3)
    assert not by[1010:].any()


def test_gradients_that_differ_at_once_are_sums_in_another_order() -> None:
    fine, clipping = RoundingSource(2.0**-23, ""), Comparison()
    first = Comparison(differences=[Difference(1, "gradient", "w", 1, 1e-7, 0, 1, 1)])
    later = Comparison(differences=[Difference(2, "gradient", "w", 1, 1e-7, 0, 1, 1)])
    assert added_otherwise(fine, first).of_sums
    assert not added_otherwise(fine, later).of_sums and not added_otherwise(fine, clipping).of_sums
    coarse = RoundingSource(2.0**-8, "", in_gradients=True)
    assert not added_otherwise(coarse, first).of_sums


def test_wrapper_prefixes_are_taken_out_of_names() -> None:
    wrapped = "_orig_mod.layers.0._fsdp_wrapped_module._checkpoint_wrapped_module.module.weight"
    assert clean_name(wrapped) == "layers.0.module.weight"


def test_limits_grow_with_measured_noise_and_never_before_their_source() -> None:
    fine = RoundingSource(2.0**-23, "")
    noise = Comparison(
        differences=[
            Difference(2, "weight", "w", 1, 1e-4, 0, 1, 1),
            Difference(2, "loss", "rank 0", 1, 1e-5, 0, 1, 1),
        ]
    )
    limit = measured_limits(noise, fine)
    assert limit(2, "weight", "w") == pytest.approx(16e-4)
    assert limit(1, "weight", "w") == fine.entry
    assert limit(3, "loss", "rank 1") == pytest.approx(16e-5)
    assert limit(1, "loss", "rank 0") == fine.entry
    coarse = RoundingSource(2.0**-8, "", in_gradients=True)
    assert entry_limit(coarse)(1, "loss", "rank 0") == fine.entry
    assert entry_limit(coarse)(1, "gradient", "w") == coarse.entry
    late = RoundingSource(1e-6, "")
    assert entry_limit(late)(1, "gradient", "w") == fine.entry
    assert entry_limit(late)(1, "gradient norm", "rank 0") == late.entry


def test_replicas_that_differ_in_both_arms_are_no_difference_of_the_arms() -> None:
    both = [(arm, 1, "gradient", "ignored", (1,)) for arm in ("original", "candidate")]
    assert Comparison(replicas_differ=both).replicas_apart == []
    alone = ("candidate", 1, "weight", "w", (1,))
    assert Comparison(replicas_differ=[*both, alone]).replicas_apart == [alone]
