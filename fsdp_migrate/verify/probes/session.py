"""What the probes of one rank share: the record, the models found so far, and the step they are in."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from fsdp_migrate.verify.calls import FILE, Call
from fsdp_migrate.verify.probes.indices import Indices, prefix
from fsdp_migrate.verify.probes.recorder import Kept, Recorder
from fsdp_migrate.verify.probes.shards import ParameterIndex
from fsdp_migrate.verify.probes.wrapping import modules_of
from fsdp_migrate.verify.spec import STEP

_DIGITS = 12
"""Of the number of a step."""


@dataclass
class StepState:
    """What happened since the last optimizer step.

    Args:
        outputs: digests of what the models returned.
        answers: calls without gradients that were recorded, by model.
        unscaled: the losses before a gradient scaler took them, if one did.
        scaled: what scalers gave back, with the value that they were given, and their factor.
        zeroed: for each call of `zero_grad`, the backward passes made before it.
        random: digest of the random number generators at the first call of a model.
        rewritten: weights that are not what the last optimizer step left, at the first call of a model.
        evaluating: modules in evaluation mode at that call.
        called: whether a model was called.
        modules: of each model.
        spans: what the step's time went to: kind, begin and end on the session's clock, in seconds.
        bytes: that collectives gather, scatter or reduce, by name.
    """

    answers: Counter[str] = field(default_factory=Counter)
    losses: list[Tensor] = field(default_factory=list)
    unscaled: list[Tensor] = field(default_factory=list)
    scaled: list[tuple[weakref.ref[Tensor], Tensor, Tensor]] = field(default_factory=list)
    reductions: list[int] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    clips: list[dict[str, object]] = field(default_factory=list)
    collectives: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    reduce_dtypes: set[str] = field(default_factory=set)
    gradients: list[Kept] = field(default_factory=list)
    zeroed: list[int] = field(default_factory=list)
    random: str = ""
    rewritten: list[str] = field(default_factory=list)
    evaluating: int = 0
    called: bool = False
    modules: dict[nn.Module, list[nn.Module]] = field(default_factory=dict)
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    probe_seconds: float = 0.0
    seconds: float = 0.0
    began: float = field(default_factory=time.perf_counter)


@dataclass
class Session:
    """One arm on one rank, from its first line to its last.

    Args:
        recorder: where it is written.
        steps: after so many it is `ending`: with the next backward pass `on_last_step` is called.
        alive: file touched at every step, for the launcher's watch.
        units: names of FSDP units, by the module the user wrote and by its wrapper.
        entered: names of the units that are being called.
        indices: of the models' parameters; see `index`.
        log: file descriptor of the collectives' log.
        counter: of the file that says how many steps have been made.
        others: models that are only called without gradients, such as averages of weights and teachers.
        checksums: of the weights after the last optimizer step.
        at_first_model: called once, when the first model is met: the job's modules are imported by then.
        described: how many of the models have been described.
        saves: calls of `torch.save` so far.
        replicated: whether a model is trained by DistributedDataParallel.
        perturb: relative change made to every gradient element; see `verify.noise`.
        perturb_weights: the same for the initial weights.
        perturb_sums: change small elements by as much as those of usual size.
    """

    recorder: Recorder
    steps: int
    alive: Path
    on_last_step: Callable[[], None]
    fixed_order: bool = False
    perturb: float = 0.0
    perturb_weights: float = 0.0
    perturb_sums: bool = False
    step: int = 0
    probe_total: float = 0.0
    in_backward: int = 0
    probing_depth: int = 0
    models: list[nn.Module] = field(default_factory=list)
    others: list[nn.Module] = field(default_factory=list)
    checksums: dict[str, int] = field(default_factory=dict)
    at_first_model: list[Callable[[], None]] = field(default_factory=list)
    described: int = 0
    described_others: set[int] = field(default_factory=set)
    saves: int = 0
    replicated: bool = False
    ending: bool = False
    has_passed: bool = False
    now: StepState = field(default_factory=StepState)
    input_dtypes: dict[str, list[str]] = field(default_factory=dict)
    optimizers: dict[int, int] = field(default_factory=dict)
    autocast: str = ""
    said: set[str] = field(default_factory=set)
    buffers_written: bool = False
    names: dict[nn.Module, str] = field(default_factory=dict)
    units: dict[nn.Module, str] = field(default_factory=dict)
    entered: list[str] = field(default_factory=list)
    indices: Indices = field(default_factory=Indices)
    log: int | None = None
    counter: int | None = None
    open: bool = True

    @contextmanager
    def probing(self) -> Iterator[bool]:
        """Around everything a probe does: no gradient, no recursion into probes, its time kept apart.

        Yields:
            False inside another probe, where nothing is to be recorded.
        """
        if self.probing_depth or not self.open:
            yield False
            return
        began = time.perf_counter()
        self.probing_depth += 1
        try:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                yield True
        finally:
            self.probing_depth -= 1
            took = time.perf_counter() - began
            self.now.probe_seconds += took
            self.probe_total += took

    def clock(self) -> float:
        """Seconds of the job's own time: what probes took is left out."""
        return time.perf_counter() - self.probe_total

    @contextmanager
    def span(self, kind: str) -> Iterator[None]:
        """Around a part of a step, for the timeline."""
        began = self.clock()
        try:
            yield
        finally:
            self.now.spans.append((kind, began, self.clock()))

    def index(self) -> ParameterIndex:
        """All parameters of all models of the job, at this moment."""
        return self.indices.of([self.modules(model) for model in self.models])

    def modules(self, model: nn.Module) -> list[nn.Module]:
        """All modules of a model, itself first; looked for again when a model is called."""
        found = self.now.modules.get(model)
        if found is None:
            found = self.now.modules[model] = modules_of(model)
        return found

    def index_numel(self) -> int:
        """Elements of all parameters of all models, each counted whole and once."""
        return self.index().elements

    def prefix(self, model: nn.Module) -> str:
        """What names of this model start with: nothing for the first, its position for others."""
        return prefix(self.models.index(model))

    def step_done(self) -> None:
        """Tell the launcher that a step has been made.

        In place: a file system may wait for its disk where a file is cut to nothing and written anew.
        """
        if self.counter is None:
            self.counter = os.open(self.alive.parent / STEP, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(self.counter, f"{self.step:<{_DIGITS}}".encode(), 0)
        self.alive.touch()

    def note(self, text: str) -> None:
        """Say once that something could not be observed."""
        if text not in self.said:
            self.said.add(text)
            self.recorder.event("not_observed", text=text)

    @property
    def unit(self) -> str:
        """The innermost FSDP unit that is being called."""
        return self.entered[-1] if self.entered else ""

    def enter(self, module: nn.Module) -> None:
        """A module is called."""
        if module in self.units:
            self.entered.append(self.units[module] or "(root)")

    def leave(self, module: nn.Module) -> None:
        """A module has been called."""
        if self.entered and module in self.units:
            self.entered.pop()

    def log_call(self, call: Call) -> None:
        """Write down a collective before it is made: it may be the last thing this rank does."""
        if self.log is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self.log = os.open(self.alive.parent / FILE, flags, 0o644)
        os.write(self.log, call.line().encode())

    def restart(self, recorder: Recorder) -> None:
        """Begin another arm in the same process; the models of the one before are let go."""
        self.recorder, self.step, self.open, self.ending = recorder, 0, True, False
        self.models.clear()
        self.indices.clear()
        self.names.clear()
        self.units.clear()
        self.entered.clear()
        self.others.clear()
        self.checksums.clear()
        self.described = 0
        self.described_others.clear()
        self.saves = 0
        self.replicated = False
        self.input_dtypes.clear()
        self.autocast = ""
        self.optimizers.clear()
        self.said.clear()
        self.buffers_written = False
        _forget_peak_memory()
        self.now = StepState()

    def finish(self, reason: str) -> None:
        """Write the last line of the record; nothing is recorded afterwards."""
        if not self.open:
            return
        self.recorder.event("end", reason=reason, steps=self.step, processor=_processor(), **_memory())
        self.recorder.close()
        self.open = False


def _cuda_in_use() -> bool:
    used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return used


def _processor() -> str:
    """What computed, in its maker's words; "" where the system does not say."""
    if torch.cuda.is_available() and _cuda_in_use():
        return torch.cuda.get_device_name()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _memory() -> dict[str, object]:
    if torch.cuda.is_available() and _cuda_in_use():
        return {"peak_bytes": torch.cuda.max_memory_allocated(), "peak_is": "GPU memory allocated"}
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:  # not Linux: no peak that could be set back
        return {"peak_bytes": 0, "peak_is": ""}
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return {"peak_bytes": int(peak.split()[1]) * 1024, "peak_is": "resident memory of the process"}


def _forget_peak_memory() -> None:
    gc.collect()
    if torch.cuda.is_available() and _cuda_in_use():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):  # "5" resets VmHWM; proc(5)
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
