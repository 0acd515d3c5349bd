"""A plan from a job: both arms measured on fake tensors, and what else could be done under FSDP2."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.distributed.device_mesh import DeviceMesh

from checkpoint_convert.errors import CheckpointError
from fsdp_migrate.errors import MigrateError, UsageError
from fsdp_migrate.planner import optimizers, sharding, skeleton
from fsdp_migrate.planner.alternatives import batches_to_try, best, settings_in_words, ways
from fsdp_migrate.planner.fake_world import fake_group, fake_tensors, require_torch
from fsdp_migrate.planner.fullest_rank import fullest_rank
from fsdp_migrate.planner.inputs import prepare
from fsdp_migrate.planner.measure import MeasuredArm
from fsdp_migrate.planner.model import (
    Alternative,
    Arm,
    ArmRefused,
    Gpu,
    Job,
    ModelFacts,
    Plan,
    Settings,
    fits,
)
from fsdp_migrate.planner.own_model import OwnModel, build, facts_of, materialise
from fsdp_migrate.planner.recorder import Recorder

Progress = Callable[[str], None]
ARMS = ("FSDP1", "FSDP2")
_ASKS = "it asks for values of tensors"


@dataclass(frozen=True, slots=True)
class Measured:
    """One arm, and what is to be said of how it was measured."""

    arm: Arm
    notes: tuple[str, ...] = ()


def plan(job: Job, gpu: Gpu | None, progress: Progress, *, search: bool) -> Plan:
    """Measure both arms of a job, and with `search` its alternatives under FSDP2.

    Raises:
        UsageError: torch is too old, or neither arm runs.
        LayoutError: the model cannot be built.
    """
    require_torch()
    facts = _look_at(job)
    found = []
    for name in ARMS:
        progress(f"a rank of {job.settings.world} under {name}")
        found.append(fake_arm(name, job))
    arms = tuple(each.arm for each in found)
    if all(isinstance(arm, ArmRefused) for arm in arms):
        raise _neither(arms, job)
    alternatives = _search(job, gpu, progress) if search else ()
    notes = dict.fromkeys(note for each in found for note in each.notes)
    chosen = None if gpu is None else best(alternatives, gpu)
    return Plan(job, facts, arms, gpu, alternatives, chosen, tuple(notes), torch.__version__)


def _look_at(job: Job) -> ModelFacts:
    own = build(job)
    if job.settings.checkpointing and not own.units:
        raise UsageError(
            "--ac full checkpoints the wrapped units, and none are named",
            hint=f"Name them: --wrap {facts_of(own, job).advice or 'pkg.module:Block'}",
        )
    return facts_of(own, job)


def _neither(arms: tuple[Arm, ...], job: Job) -> UsageError:
    reasons = list(dict.fromkeys(arm.reason for arm in arms if isinstance(arm, ArmRefused)))
    told = (
        reasons[0]
        if len(reasons) == 1
        else "\n".join(f"{a}: {r}" for a, r in zip(ARMS, reasons, strict=True))
    )
    if not job.inputs.are_known:
        hint = "Does the factory return the model that FSDP wraps in the job, and --wrap its units?"
    elif _ASKS in told:
        hint = (
            "Give a factory whose forward does not ask (experts that all run, say), or leave --inputs and "
            "--batch out: the model is not called then, and all but activations is told."
        )
    else:
        hint = (
            "Name a function that returns what the model is trained with (--inputs pkg.module:function), or "
            "leave --inputs and --batch out: the model is not called then, and all but activations is told."
        )
    return UsageError(f"{job.model}: it does not run on fake tensors: {told}", hint=hint)


def fake_arm(name: str, job: Job) -> Measured:
    """One arm on fake tensors, on the rank that holds most."""
    own, recorder = build(job), Recorder(fake=True)
    try:
        with fake_group(job.settings.world, _rank(name, own, job.settings)):
            mesh = sharding.mesh_of(job.settings)
            with fake_tensors(), recorder.watch():
                return measure(name, own, job, mesh, recorder)
    except (MigrateError, CheckpointError):
        raise
    except Exception as error:  # torch and the user's model raise what they like
        return Measured(ArmRefused(name, _reason(error)))
    finally:
        gc.collect()  # a model has cycles, and the next one is as large


def _rank(name: str, own: OwnModel, settings: Settings) -> int:
    if name != "FSDP1" or settings.strategy == "no_shard" or not sharding.uses_orig_params(own, settings):
        return 0
    return fullest_rank(own.layout, [path for path, _ in own.units], settings)


def measure(name: str, own: OwnModel, job: Job, mesh: DeviceMesh, recorder: Recorder) -> Measured:
    """One arm where the process is: on fake tensors, or on real ones of a real group.

    Args:
        own: on the meta device; it is used up.
        recorder: watching.
    """
    settings = job.settings
    materialise(own.module, getattr(torch, settings.dtype) if settings.dtype else None)
    call = prepare(job.inputs, own.module) if job.inputs.are_known else None
    if call is None:
        skeleton.strip(own)
    use_orig_params = sharding.uses_orig_params(own, settings)
    if settings.checkpointing and call is not None:
        own = sharding.checkpointed(own)
    if name == "FSDP1":
        model = sharding.shard_fsdp1(own, settings, mesh, use_orig_params=use_orig_params)
    else:
        model = sharding.shard_fsdp2(own, settings, mesh)
    arm = MeasuredArm(name, model, optimizers.maker(settings.optimizer), recorder)
    found = arm.measure(call)
    if name == "FSDP1":
        found = replace(found, use_orig_params=use_orig_params)
    return Measured(found, tuple(arm.notes))


def _reason(error: Exception) -> str:
    """What was raised, and the line of code outside of torch that led there."""
    from torch._subclasses import fake_tensor

    text = str(error).strip().split("\n\n")[0][:400]
    if isinstance(error, (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException)):
        text = f"{_ASKS} ({error.func}), and fake tensors have none"
    else:
        text = f"{type(error).__name__}: {text}"
    torch_home = Path(torch.__file__).parent
    ours = Path(__file__).parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_file() and torch_home not in path.parents and ours not in path.parents:
            return f"{text}\n  at {frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}"
    return text


def _search(job: Job, gpu: Gpu | None, progress: Progress) -> tuple[Alternative, ...]:
    """Every way at the given batch; then larger batches of the way to take, as long as they fit."""
    found = []
    for settings in ways(job):
        progress(f"alternative: {settings_in_words(settings)}")
        found.append(
            Alternative(settings, job.inputs.batch, fake_arm("FSDP2", replace(job, settings=settings)).arm)
        )
    first = None if gpu is None else best(found, gpu)
    if first is None or gpu is None:
        return tuple(found)
    for batch in batches_to_try(job.inputs.batch):
        progress(f"alternative: batch {batch}")
        larger = replace(job, settings=first.settings, inputs=replace(job.inputs, batch=batch))
        found.append(Alternative(first.settings, batch, fake_arm("FSDP2", larger).arm))
        if not fits(found[-1].arm, gpu):
            break
    return tuple(found)
