"""Printed numbers: which are compared, how far they may be apart, and what is no alarm."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fsdp_migrate.verify import event_files, worker
from fsdp_migrate.verify.event_files import flush_writers, say_trackers, scalar_lines
from fsdp_migrate.verify.printed import counts_whole_parameters, differences, prints_dtensors
from fsdp_migrate.verify.spec import RankFiles
from fsdp_migrate.verify.written import counterparts, gone, written


@pytest.mark.parametrize(
    ("before", "after", "label"),
    [
        ("step 3 loss 2.5000 12.1 ms", "step 3 loss 2.6000 99.7 ms", "loss"),
        (
            "{'loss': '3.94', 'grad_norm': '2.61'}",
            "{'loss': '3.94', 'grad_norm': '1.85'}",
            "grad_norm",
        ),
        ("weight mean -0.005490", "weight mean 0.000275", "weight mean"),
        ("total 9,632 params", "total 19,264 params", "total"),
        ("grad norm: 1e-3", "grad norm: 2e-3", "grad norm"),
        ("iter 2: kl 0.0186", "iter 2: kl 0.0060", "kl"),
        ("[0] ce=5.49 aux=1.37", "[0] ce=5.49 aux=2.75", "aux"),
        ("val_f1: 0.75 bleu 3", "val_f1: 0.25 bleu 3", "val_f1"),
        ("reward 0.5", "reward 1.0", "reward"),
    ],
)
def test_number_of_training_that_differs_is_found(before: str, after: str, label: str) -> None:
    found = differences((before,), (after,))
    assert len(found) == 1
    assert found[0].label == label


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("step 3 took 2.5 s", "step 3 took 7.5 s"),
        ("tokens/s 512.0", "tokens/s 700.0"),
        ("peak mem 12.5 GiB, loss 1.0", "peak mem 18.5 GiB, loss 1.0"),
        ("loss 2.5000", "loss 2.5001"),
        ("epoch 1", "epoch 2"),
        ("loss nan", "loss nan"),
        ("kl 3.1e-09", "kl -1.2e-08"),  # of two policies that are the same
        ("loss 1.0", "the loss is 2.0"),  # other words: another line
    ],
)
def test_times_rates_and_rounding_are_no_difference(before: str, after: str) -> None:
    assert differences((before,), (after,)) == []


def test_arms_that_differ_by_rounding_print_other_digits() -> None:
    assert differences(("loss 2.50",), ("loss 2.52",), tolerance=0.02) == []
    assert len(differences(("loss 2.50",), ("loss 2.75",), tolerance=0.02)) == 1


def test_numbers_of_the_whole_job_round_less_than_single_tensors() -> None:
    for words, found in (
        ("grad norm", 1),
        ("val loss", 1),
        ("val acc", 0),
        ("mean of w", 0),
    ):
        line, after = f"{words} 0.50", f"{words} 0.60"
        assert len(differences((line,), (after,), tolerance=5.0, of_all=0.02)) == found, line


def _field(number: int, value: bytes) -> bytes:
    """A field of bytes of a protocol buffer; all are shorter than 128."""
    return bytes([number << 3 | 2, len(value)]) + value


def _event(step: int, tag: str, value: float) -> bytes:
    """A record of a TensorBoard file as `SummaryWriter.add_scalar` writes it, but for checksums."""
    held = _field(1, tag.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", value)
    event = b"\x09" + struct.pack("<d", 1.0) + bytes([2 << 3, step & 0x7F | 0x80, step >> 7])
    event += _field(5, _field(1, held))
    return struct.pack("<QI", len(event), 0) + event + bytes(4)


def test_scalars_of_tensorboard_are_lines(tmp_path: Path) -> None:
    data = _event(0, "train/loss", 1.5) + _event(300, "grad_norm", 1e-7)
    lines = ("step 0, train/loss: 1.5", "step 300, grad_norm: 1e-07")
    assert tuple(scalar_lines(data)) == lines
    assert [len(list(scalar_lines(data[:cut]))) for cut in (0, 11, 40, len(data) - 8)] == [0, 0, 0, 1]
    for arm, host in (
        ("original", "events.out.tfevents.17.node.81.0"),
        ("candidate", "events.out.tfevents.18.node.93.0"),
    ):
        (tmp_path / arm / "runs").mkdir(parents=True)
        (tmp_path / arm / "runs" / host).write_bytes(data)
    before, after = (written(tmp_path / arm, 0.0) for arm in ("original", "candidate"))
    ((left, right),) = counterparts(before, after)
    assert before[left] == after[right] == lines and gone(before, after) == []
    assert gone(before, {}) == [left]


def test_all_writers_are_flushed_whatever_one_of_them_met(monkeypatch: pytest.MonkeyPatch) -> None:
    class SummaryWriter:
        flushed = False

        def flush(self) -> None:
            self.flushed = True

    class OfProject(SummaryWriter):
        pass

    class Full(SummaryWriter):
        def flush(self) -> None:
            super().flush()
            raise OSError(28, "No space left on device")

    monkeypatch.setitem(sys.modules, "tensorboardX.writer", SimpleNamespace(SummaryWriter=SummaryWriter))
    writers = [Full(), SummaryWriter(), OfProject(), Full()]
    flush_writers()
    assert all(writer.flushed for writer in writers)


def test_trackers_that_hold_numbers_of_their_own_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    say_trackers(said.append)
    assert said == []
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    say_trackers(said.append)
    assert len(said) == 1 and "gives to wandb, mlflow alone are not compared" in said[0]


def test_record_is_complete_before_writers_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def fail() -> None:
        done.append("flushed")
        raise RuntimeError("what the thread of a writer met")

    monkeypatch.setattr(event_files, "flush_writers", fail)
    spec = SimpleNamespace(tree=None, performance=True)
    session = SimpleNamespace(open=True, finish=done.append)
    with pytest.raises(RuntimeError, match="thread of a writer"):
        worker._complete(spec, session, RankFiles(tmp_path), "the script ended")  # type: ignore[arg-type]
    assert done == ["the script ended", "flushed"]


def test_lines_of_other_steps_are_not_compared() -> None:
    """A job that logs when some seconds have passed logs other steps in each run."""
    before = tuple(f"2026-01-02 10:20:{step:02d} step {step}: loss {5 - step}.0" for step in (1, 2, 4))
    after = tuple(f"2026-01-02 10:25:{step:02d} step {step}: loss {5 - step}.0" for step in (1, 3, 4))
    assert differences(before, after) == []
    wrong = ("2026-01-02 10:25:03 step 3: loss 2.0", "2026-01-02 10:25:04 step 4: loss 3.0")
    assert [one.original for one in differences(before, wrong)] == [1.0]
    assert len(differences(("10:20:59 loss 1.0",), ("11:30:00 loss 2.0",))) == 1


@pytest.mark.parametrize(
    ("line", "numel", "whole"),
    [
        ("Trainable params: 3.2 K", 3233, True),
        ("3233 params", 3233, True),
        ("6466 params", 3233, False),  # counted on every rank, and summed again
        ("loss 3.2", 3233, False),
    ],
)
def test_count_of_whole_parameters_is_no_alarm(line: str, numel: int, whole: bool) -> None:
    number = next(word for word in line.split() if word[0].isdigit())
    before = line.replace(number, f"{float(number) / 2:g}")
    (one,) = differences((before,), (line,))
    assert counts_whole_parameters(one, numel) is whole


def test_dtensor_in_a_line_is_seen_where_none_was() -> None:
    shown = "norm DTensor(local_tensor=0.5, ...)"
    assert prints_dtensors(("norm 0.7",), (shown,)) == shown
    assert prints_dtensors((shown,), (shown,)) == ""
