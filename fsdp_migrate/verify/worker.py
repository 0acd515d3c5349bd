"""The program of every rank: attach the probes, run the job as it is, leave a complete record.

A script runs as `__main__` with its own arguments, its own process group and its own exit. After the last
step that is wanted the rank leaves by `os._exit`: an orderly exit of a gloo process aborts about one time in
ten (torch 2.13), and the rest of the script is not what is compared.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from fsdp_migrate.verify import (
    event_files,
    exact_norm,
    fixed_order,
    fsdp1_on_cpu,
    fsdp2_on_cpu,
    older_gloo,
    own_launch,
    partitioned,
    private_files,
    rehearsal,
    replicated,
    unsharded,
)
from fsdp_migrate.verify.model import ArmName
from fsdp_migrate.verify.probes.attach import attach_all
from fsdp_migrate.verify.probes.models import last_look
from fsdp_migrate.verify.probes.recorder import Recorder
from fsdp_migrate.verify.probes.session import Session
from fsdp_migrate.verify.reference_job.config import Arm
from fsdp_migrate.verify.shadow import shadowed
from fsdp_migrate.verify.spec import ENOUGH, RankFiles, WorkerSpec
from fsdp_migrate.verify.tracebacks import shown

_API: dict[ArmName, Arm] = {ArmName.CANDIDATE: "fsdp2", ArmName.DDP: "ddp"}
"""What shards the bundled job in an arm; FSDP1 in all others."""


def main(spec_path: str) -> int:
    """Run one rank; the exit code of the process."""
    spec = WorkerSpec.read(Path(spec_path))
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    peers = [RankFiles.of(Path(spec.records), spec.arms[0].value, each) for each in range(size)]
    files = peers[rank]
    files.folder.mkdir(parents=True, exist_ok=True)
    files.alive.write_text(f"{socket.gethostname()} {os.getpid()}", encoding="utf-8")
    stacks = files.stacks.open("w", encoding="utf-8")
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR2, stacks, all_threads=True)
    try:
        if spec.program == "reference":
            _reference(spec, rank, files)
        else:
            _script(spec, rank, files, peers)
    except BaseException as error:
        if not (isinstance(error, SystemExit) and error.code in (None, 0)):
            _leave_word(files, error, spec.tree)
            return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
    _wait_for_peers(files, peers, spec.wait_for_peers_s)
    return 0


def _session(
    spec: WorkerSpec, arm: ArmName, rank: int, files: RankFiles, on_last: Callable[[], None]
) -> Session:
    return Session(
        _recorder(spec, arm, rank),
        spec.steps,
        files.alive,
        on_last,
        fixed_order=spec.fixed_order,
        perturb=spec.perturb,
        perturb_weights=spec.perturb_weights,
        perturb_sums=spec.perturb_sums,
    )


def _recorder(spec: WorkerSpec, arm: ArmName, rank: int) -> Recorder:
    import torch

    folder = Path(spec.records) / arm.value / f"rank{rank}"
    recorder = Recorder(folder, spec.full_limit_bytes, every_element=spec.every_element)
    ranks = int(os.environ["WORLD_SIZE"])
    facts = {"rank": rank, "ranks": ranks, "torch": torch.__version__, "pid": os.getpid()}
    recorder.event("start", **facts, looks_on=True)
    return recorder


def _prepare(spec: WorkerSpec, session: Session) -> rehearsal.OnCpu | None:
    """Attach probes and, on CPU, what stands in for a GPU."""

    def say(text: str) -> None:
        if text not in session.said and session.open:
            session.said.add(text)
            session.recorder.event("substitution", text=text)

    if spec.device == "cpu":
        older_gloo.apply(say)
    if spec.program != "reference":
        own_launch.spawn_nothing(say)
    if spec.exact and not exact_norm.apply():
        session.note("norms in float64: before torch 2.6 clipping adds up in a function of its own")
    if spec.performance:
        from fsdp_migrate.verify.probes import performance

        performance.attach(session, trace=os.environ["RANK"] == "0")
    else:
        attach_all(session)
    mode = None
    if spec.device == "cpu":
        if spec.tree is not None and rehearsal.names_cuda(Path(spec.tree[0]), spec.arguments):
            mode = rehearsal.OnCpu(say, as_gpu=spec.as_gpu)
            rehearsal.apply(mode)
        fsdp1_on_cpu.apply(say)
        fsdp2_on_cpu.apply(say)
    if spec.unsharded:
        unsharded.apply()
    if spec.under == ArmName.DDP.value:
        replicated.apply(session.note)
    elif spec.under == ArmName.DEEPSPEED.value:
        partitioned.apply(session.note, spec.device)
    if session.fixed_order:
        fixed_order.divide_once_in_fsdp1()
    return mode


def _script(spec: WorkerSpec, rank: int, files: RankFiles, peers: list[RankFiles]) -> None:
    def leave() -> NoReturn:
        _complete(spec, session, files, ENOUGH)
        _wait_for_peers(files, peers, spec.wait_for_peers_s)
        os._exit(0)

    def ends(status: int) -> None:
        if not session.open or files.error.exists():
            return
        if status == 0:
            _complete(spec, session, files, "the script ended")
            _wait_for_peers(files, peers, spec.wait_for_peers_s)
        else:
            _leave_word(files, SystemExit(f"os._exit({status})"), spec.tree)

    session = _session(spec, spec.arms[0], rank, files, leave)
    mode = _prepare(spec, session)
    own_launch.heed_exit(ends)
    _keep_files_private(spec, session)
    os.chdir(spec.cwd)
    if spec.tree is not None:
        copy, source = spec.tree
        sys.path[:] = [_moved(entry, source, copy) for entry in sys.path]
    sys.argv = [spec.target, *(shadowed(word, Path(spec.shadow)) for word in spec.arguments)]
    try:
        with mode or contextlib.nullcontext():
            if spec.program == "module":
                sys.path.insert(0, spec.cwd)
                runpy.run_module(spec.target, run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, str(Path(spec.target).parent))
                runpy.run_path(spec.target, run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    _complete(spec, session, files, "the script ended")


def _reference(spec: WorkerSpec, rank: int, files: RankFiles) -> None:
    """Run every arm of the bundled job, one after the other in the same processes."""
    import torch
    import torch.distributed as dist

    from fsdp_migrate.verify.reference_job import train
    from fsdp_migrate.verify.reference_job.config import ReferenceConfig

    config = ReferenceConfig(**json.loads(spec.target))
    session = _session(spec, spec.arms[0], rank, files, lambda: None)
    _prepare(spec, session)
    if spec.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if not spec.performance:
            _be_deterministic()
    on_gpu = "cpu:gloo,cuda:nccl" if config.offload else "nccl"  # a norm of offloaded gradients is on the CPU
    dist.init_process_group(on_gpu if spec.device == "cuda" else "gloo")
    for arm in spec.arms:
        if arm is not spec.arms[0]:
            session.restart(_recorder(spec, arm, rank))
        train.run(_API.get(arm, "fsdp1"), config)
        session.finish("the job ended")
    sys.stdout.flush()
    files.done.touch()


def _be_deterministic() -> None:
    """Attention's backward pass adds in the order in which blocks of threads end, but for this."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read with the first product
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _keep_files_private(spec: WorkerSpec, session: Session) -> None:
    """What the job writes stays with its arm; what it writes or reads elsewhere is written down."""
    mine, records = os.getpid(), Path(spec.records)

    def tell(what: str, path: str) -> None:
        if not session.open or os.getpid() != mine:
            return
        if what == "start":
            session.note(private_files.STARTED.format(path))
        elif what == "resume":
            session.recorder.event("resumed", path=path)
        else:
            session.recorder.event("elsewhere", what=what, path=path)

    specs = [records / f"{arm.value}.json" for arm in (ArmName.ORIGINAL, spec.arms[0])]
    is_second = spec.arms[0] is ArmName.CANDIDATE and all(path.exists() for path in specs)
    since, until = (path.stat().st_mtime if is_second else 0.0 for path in specs)
    if spec.checkpoint:
        session.recorder.event("resumes", path=spec.checkpoint)
    private_files.apply(Path(spec.shadow), records, (since, until), tell, checkpoint=spec.checkpoint)


def _moved(entry: str, source: str, copy: str) -> str:
    return copy + entry.removeprefix(source) if _is_below(entry, source) else entry


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def _complete(spec: WorkerSpec, session: Session, files: RankFiles, reason: str) -> None:
    """Close the record, with the modules that came from the user's tree instead of the copy."""
    if not session.open:
        return
    if spec.tree is not None:
        copy, source = spec.tree
        strayed = sorted(
            path
            for module in list(sys.modules.values())
            if (path := str(getattr(module, "__file__", None) or "")).startswith(source + os.sep)
            and not path.startswith(copy + os.sep)
        )
        session.recorder.event("strayed", files=[path.removeprefix(source + os.sep) for path in strayed])
    if not spec.performance:
        last_look(session)
        event_files.say_trackers(session.note)
    session.finish(reason)
    event_files.flush_writers()
    sys.stdout.flush()
    sys.stderr.flush()
    files.done.touch()


def _wait_for_peers(files: RankFiles, peers: list[RankFiles], seconds: float) -> None:
    """Stay until every rank is done, so that none loses a connection in its last collective."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and files.done.exists() and not all(each.done.exists() for each in peers):
        time.sleep(0.01)


def _leave_word(files: RankFiles, error: BaseException, tree: tuple[str, str] | None) -> None:
    """Write the exception for the launcher, with the user's own paths."""
    frames = shown(traceback.extract_tb(error.__traceback__))
    kind, message = type(error).__name__, str(error)
    if isinstance(error, SystemExit):
        is_other = isinstance(error.code, str) and error.code.startswith("os._exit(")
        message = f"the script called {error.code if is_other else f'sys.exit({error.code!r})'}"
    text = (
        "Traceback (most recent call last):\n"
        + "".join(traceback.format_list(frames))
        + f"{kind}: {message}\n"
    )
    if tree is not None:
        text = text.replace(tree[0].removesuffix(tree[1]), "")
    word = {"type": kind, "message": message, "traceback": text, "at": time.time()}
    temporary = files.error.with_suffix(".partial")
    temporary.write_text(json.dumps(word), encoding="utf-8")
    temporary.replace(files.error)
    print(text, file=sys.stderr, flush=True)


def _start_under_agent() -> NoReturn:
    """Run as a program of torch's elastic agent: take over the streams, leave without an orderly exit."""
    spec = WorkerSpec.read(Path(sys.argv[1]))
    files = RankFiles.of(Path(spec.records), spec.arms[0].value, int(os.environ["RANK"]))
    files.folder.mkdir(parents=True, exist_ok=True)
    for stream, path in ((1, files.stdout), (2, files.stderr)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), stream)
    code = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _start_under_agent()
