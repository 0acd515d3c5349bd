"""A process that has imported torch once and forks the ranks of every launch from itself.

Importing torch takes longer than a small parity job; eight fresh interpreters on two cores need three times
the time of eight forks. Forking is safe here because this process starts no thread, touches no device and
runs no tensor operation. It reads one JSON command per line from stdin and writes one JSON event per line to
stdout; when stdin ends, whatever the reason, it kills every rank and leaves. Only Linux, as FSDP itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import sys
from dataclasses import dataclass, field
from typing import NoReturn

_POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1
_BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


@dataclass
class _Server:
    events: int
    path: list[str]
    ranks: dict[int, int] = field(default_factory=dict)

    def say(self, **event: object) -> None:
        os.write(self.events, (json.dumps(event) + "\n").encode())

    def obey(self, command: dict[str, object]) -> None:
        match command["do"]:
            case "launch":
                ranks = command["ranks"]
                assert isinstance(ranks, list)
                for rank in ranks:
                    self._fork(rank)
            case "signal":
                number = command["signal"]
                assert isinstance(number, int)
                self.signal_all(number)

    def signal_all(self, number: int) -> None:
        for pid in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                # Every rank leads a group of its own, so that its data loader workers end with it. Stacks and
                # interrupts are for the rank alone.
                (os.kill if number == signal.SIGUSR2 else os.killpg)(pid, number)

    def end_all(self) -> None:
        """Kill every rank and wait for it: where nobody else collects orphans they would stay as zombies."""
        self.signal_all(signal.SIGKILL)
        for pid in self.ranks:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _fork(self, rank: dict[str, object]) -> None:
        pid = os.fork()
        if pid == 0:
            _become_rank(rank, self.path)
        self.ranks[pid] = int(str(rank["rank"]))

    def reap(self) -> None:
        while self.ranks:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid in self.ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # what the rank itself started
                self.say(event="exit", rank=self.ranks.pop(pid), code=os.waitstatus_to_exitcode(status))


def _become_rank(rank: dict[str, object], path: list[str]) -> NoReturn:
    """Turn the forked child into rank `rank`: own session, own files, own environment; run the worker."""
    code = 70
    try:
        os.setsid()
        if sys.platform == "linux":  # elsewhere a rank outlives a server that was killed
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(str(rank[name]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), stream)
        environment = rank["environment"]
        assert isinstance(environment, dict)
        os.environ.update(environment)
        sys.path[:] = path
        program = rank.get("program")
        if isinstance(program, dict):
            code = _run_program(**program)
        else:
            from fsdp_migrate.verify import worker

            code = worker.main(str(rank["spec"]))
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: gloo's threads abort an interpreter that shuts down in an orderly way, about one
        # time in ten.
        os._exit(code)


def _run_program(script: str, arguments: list[str], cwd: str) -> int:
    """Run a script as torchrun does, without probes; its exit code."""
    os.chdir(cwd)
    sys.argv = [script, *arguments]
    sys.path[:0] = [os.path.dirname(os.path.realpath(script))]  # noqa: PTH120
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as leave:
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)
        return int(leave.code or 0) if isinstance(leave.code, int | None) else 1
    return 0


def _preload(modules: list[str]) -> int:
    """Import what every rank needs; the number of GPUs, counted without touching one.

    Args:
        modules: what ranks without probes need; empty for those of `verify`.
    """
    # Libraries ask for a GPU when they are imported; by default that starts the driver in this process.
    asked = os.environ.get(_BY_NVML)
    os.environ[_BY_NVML] = "1"
    try:
        return _imported(modules)
    finally:
        if asked is None:
            del os.environ[_BY_NVML]
        else:
            os.environ[_BY_NVML] = asked


def _imported(modules: list[str]) -> int:
    if modules:
        for module in modules:
            importlib.import_module(module)
        return 0
    # torch.optim imports torch._dynamo at the first step, which takes a second.
    for module in ("torch._dynamo", "torch.distributed.fsdp", "torch.optim", "fsdp_migrate.verify.worker"):
        importlib.import_module(module)
    # Nearly every job saves; what each rank would import for it is a quarter of a small job.
    for module in ("torch.distributed.checkpoint", "safetensors.torch"):
        importlib.import_module(module)
    for name in ("device_mesh", "tensor", "checkpoint.state_dict"):
        with contextlib.suppress(ModuleNotFoundError):  # before torch 2.2 and 2.5
            importlib.import_module(f"torch.distributed.{name}")

    return _gpus()


def _gpus() -> int:
    """Counted in a fork: where NVML is missing, counting starts the driver, and no fork could use it then."""
    import torch

    pid = os.fork()
    if pid == 0:
        count = 0
        try:
            count = torch.cuda.device_count()
        finally:
            os._exit(min(count, 255))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(path: list[str], modules: list[str]) -> None:
    """Serve until stdin ends.

    Args:
        modules: to import once, instead of those that `verify` needs.
        path: `sys.path` for the ranks, without what this program itself needed to be found.
    """
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is the launcher's to handle; it then closes our stdin
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    events = os.dup(1)
    os.dup2(2, 1)  # nothing that an import prints may pass for an event
    server = _Server(events, path)
    try:
        gpus = _preload(modules)
        server.say(event="ready", gpus=gpus, torch=str(getattr(sys.modules.get("torch"), "__version__", "")))
        pending = b""
        while True:
            if select.select([0], [], [], _POLL_SECONDS)[0]:
                chunk = os.read(0, 1 << 20)
                if not chunk:
                    return
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    server.obey(json.loads(line))
            server.reap()
    finally:
        server.end_all()
        os._exit(0)  # an orderly exit with torch loaded takes seconds, and nothing is left to be done
