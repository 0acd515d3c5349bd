"""Programs record a large model's optimizer state and clipped gradients in other steps.

What one of two records lacks for that reason is no difference, and whatever it lacks for another one is.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fsdp_migrate.verify.compare import Comparison, compare
from fsdp_migrate.verify.model import CLIPPED
from fsdp_migrate.verify.probes.between import at_first_call
from fsdp_migrate.verify.probes.recorder import Recorder
from fsdp_migrate.verify.probes.session import Session, StepState
from fsdp_migrate.verify.probes.shards import Slot
from fsdp_migrate.verify.probes.steps import _after
from fsdp_migrate.verify.recorded import read_record
from fsdp_migrate.verify.schedule import is_due

NUMEL, STEPS = 600_000, 5  # 2.4 MB in fp32: more than one rank records in full at every step
STATE = "optimizer state exp_avg"
DUE = [step for step in range(1, STEPS + 1) if is_due(step, NUMEL, 1)]


def write(
    folder: Path, version: int, steps_of_states: list[int], *, last: float = 1.0, clipped: float = 0.5
) -> Path:
    """A record of one rank as a program of that version wrote it.

    Args:
        last: of the state after the last step for which there is one.
        clipped: of the gradients as the optimizer got them.
    """
    recorder = Recorder(folder / "rank0", 1 << 30, every_element=True)
    recorder.event("start", rank=0, ranks=1, torch="2", pid=1)
    recorder.event("parameters", shapes={"w": [NUMEL]}, trainable={"w": True})
    slot, counter = Slot("w", (NUMEL,), 0, NUMEL, 0), Slot("w", (), 0, 1, 0)
    for step in range(1, STEPS + 1):
        if step in steps_of_states:
            value = last if step == steps_of_states[-1] else 1.0
            recorder.tensors(step, STATE, [(slot, torch.full((NUMEL,), value))])
        recorder.tensors(step, "gradient", [(slot, torch.ones(NUMEL))])
        if version < 3 or step in steps_of_states:
            recorder.tensors(step, CLIPPED, [(slot, torch.full((NUMEL,), clipped))])
        recorder.tensors(step, "optimizer state step", [(counter, torch.tensor([float(step)]))])
        said = {"sparse": step not in steps_of_states} if version > 2 else {}
        lists = dict.fromkeys(("losses", "reductions", "reduce_dtypes", "inputs", "clips"), ())
        recorder.event("step", step=step, collectives={}, seconds=1.0, probe_seconds=0.0, **{**lists, **said})
    recorder.event("end", reason="", steps=STEPS, peak_bytes=0, peak_is="")
    recorder.close()
    (folder / "rank0" / "tensors.bin").rename(folder / "rank0" / "tensors.safetensors")
    elements = (folder / "rank0" / "tensors.safetensors").read_bytes()
    (folder / "rank0" / "tensors.safetensors").write_bytes((8).to_bytes(8, "little") + b"{}      " + elements)
    manifest = {"format": "fsdp-migrate record", "version": version, "script": "train.py", "ranks": 1}
    manifest |= {"device": "cpu", "fixed_order": False, "environment": {"variables": {}}}
    (folder / "record.json").write_text(json.dumps(manifest))
    return folder


ALL = list(range(1, STEPS + 1))
PROGRAMS = {"first": (1, ALL), "second": (2, DUE), "this": (3, DUE), "later, rarer": (3, [1])}


def compared(folder: Path, before: str, after: str, **changed: float) -> Comparison:
    arms = (
        read_record(write(folder / "before", *PROGRAMS[before])).arm,
        read_record(write(folder / "after", *PROGRAMS[after], **changed)).arm,
    )
    return compare(*arms)


def test_schedule_is_of_powers_of_two() -> None:
    assert DUE == [1, 2, 4]
    assert all(is_due(step, NUMEL, 2) for step in ALL)  # of a model of which a rank holds little


@pytest.mark.parametrize("after", PROGRAMS)
@pytest.mark.parametrize("before", PROGRAMS)
def test_states_that_one_program_does_not_record_are_no_difference(
    tmp_path: Path, before: str, after: str
) -> None:
    found = compared(tmp_path, before, after)
    assert found.unmatched == [] and found.differences == []
    assert found.compared[STATE] == len(set(PROGRAMS[before][1]) & set(PROGRAMS[after][1]))
    assert found.compared["optimizer state step"] == STEPS
    clipped = [set(ALL if PROGRAMS[name][0] < 3 else PROGRAMS[name][1]) for name in (before, after)]
    assert found.compared[CLIPPED] == len(clipped[0] & clipped[1])


def test_state_of_a_step_that_both_record_is_compared(tmp_path: Path) -> None:
    found = compared(tmp_path, "first", "second", last=2.0)
    assert [(one.step, one.quantity) for one in found.differences] == [(4, STATE)]


def test_clipped_gradients_of_a_step_that_both_record_are_compared(tmp_path: Path) -> None:
    found = compared(tmp_path, "this", "this", clipped=0.25)
    assert [one.step for one in found.differences if one.quantity == CLIPPED] == DUE
    assert {one.quantity for one in found.differences} == {CLIPPED}


def test_state_that_is_due_and_missing_is_a_difference(tmp_path: Path) -> None:
    before = write(tmp_path / "before", *PROGRAMS["first"])
    after = write(tmp_path / "after", 2, [1, 2])  # a program that should have had one of step 4
    found = compare(read_record(before).arm, read_record(after).arm)
    assert found.unmatched == [(4, STATE, "w", "candidate")]


@pytest.mark.parametrize(("width", "seen"), [(1024, [2, 4]), (8, [2, 3, 4, 5])], ids=["large", "small"])
def test_writes_outside_of_the_optimizer_are_looked_for_where_all_is_recorded(
    tmp_path: Path, width: int, seen: list[int]
) -> None:
    session = Session(Recorder(tmp_path / "rank0", 0), STEPS, tmp_path / "alive", lambda: None)
    model = torch.nn.Linear(width, width)
    session.models.append(model)
    optimizer = torch.optim.SGD(model.parameters())
    found = {}
    for session.step in range(1, STEPS + 1):
        session.now = StepState()
        at_first_call(session, model)
        found[session.step] = session.now.rewritten
        _after(session, optimizer)
        with torch.no_grad():
            model.bias.add_(1)
    assert found == {step: ["bias"] if step in seen else [] for step in range(1, STEPS + 1)}
