"""Tells the first cause of a failed job from its echoes, and says it.

When one rank dies, the others fail soon after in a collective: louder, with longer tracebacks, and sometimes
earlier in the log (torch's own summary names the wrong rank now and then). A rank that failed for a reason of
its own is the cause; a broken connection is an echo. In a hang, the cause is the rank that is *not* waiting
in a collective.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fsdp_migrate.errors import JobError
from fsdp_migrate.verify import known_errors
from fsdp_migrate.verify.calls import A_DTENSOR, read_calls, where_they_part
from fsdp_migrate.verify.launcher import LaunchResult, RankExit
from fsdp_migrate.verify.model import ArmName
from fsdp_migrate.verify.spec import EVENTS, RankFiles
from fsdp_migrate.verify.tracebacks import shown_stack

_ECHO = re.compile(
    r"connection (closed|reset|refused)|closed by peer|broken pipe|socket (closed|timeout)|DistBackendError|"
    r"remote process exited|timed out waiting|Timed out after|DistNetworkError|NCCL communicator was aborted|"
    r"watchdog|heartbeat|DistStoreError|failed to (recv|send)|no healthy|NCCL error.*remote",
    re.IGNORECASE,
)
_WAITING = re.compile(
    r"distributed_c10d\.py|_functional_collectives\.py|torch/distributed/rendezvous\.py|_fsdp_collectives\.py"
)
_TAIL_LINES = 12
_LONGEST_LINE = 400
"""Characters; torch prints the layout of every operand in one line."""


@dataclass(frozen=True, slots=True)
class RankFailure:
    """One rank that did not end well.

    Args:
        text: the exception as `Type: message`, or what the signal or exit code says.
        traceback: of the exception, the user's frames first; for a hang, the stack of the main thread.
        at: seconds since the epoch, infinite where the rank left no word.
        echo: whether this looks like the consequence of another rank's failure.
    """

    rank: int
    text: str
    traceback: str
    at: float
    echo: bool


def check(
    result: LaunchResult,
    records: Path,
    launch: ArmName,
    who: str,
    timeout_s: float,
    shadow: str = "",
) -> None:
    """Raise when the launch did not end well.

    A rank whose record is complete has not failed, whatever its exit code: gloo aborts interpreters at exit.

    Args:
        launch: first arm of the launch, under whose name its files are.
        who: what ran, for the message.
        shadow: where the job's files were, under their own paths.

    Raises:
        JobError: names the rank that failed first and why.
    """
    failures = [
        _failure(one, RankFiles.of(records, launch.value, one.rank), hung=result.hung)
        for one in result.exits
        if not RankFiles.of(records, launch.value, one.rank).done.exists()
    ]
    if not failures:
        return
    first = first_cause(failures)
    everyone = {one.rank: RankFiles.of(records, launch.value, one.rank) for one in result.exits}
    apart = where_they_part(
        {rank: read_calls(files.collectives) for rank, files in everyone.items()}, hung=result.hung
    )
    over = [one.rank for one in result.exits if everyone[one.rank].done.exists()]
    said = "\n".join(filter(None, [_over(over), apart]))
    words = _words(first, failures, who, result.hung, timeout_s, said)
    if shadow:
        words = words.replace(shadow + os.sep, os.sep)
    meant = known_errors.meaning(first.text, first.traceback) or meant_by_calls(apart)
    hint = _hint(result.hung)
    if not meant:
        hint += asked_for_gpu(_substitutions(records / launch.value / f"rank{first.rank}" / EVENTS))
    raise JobError(words, hint=f"{meant}; {hint}" if meant else hint)


def first_cause(failures: list[RankFailure]) -> RankFailure:
    """The failure that the others follow from: a reason of its own before an echo, then the earliest."""
    return min(failures, key=lambda one: (one.echo, one.at, one.rank))


def _failure(one: RankExit, files: RankFiles, *, hung: bool) -> RankFailure:
    if files.error.exists():
        said = json.loads(files.error.read_text(encoding="utf-8"))
        text = f"{said['type']}: {said['message']}"
        return RankFailure(one.rank, text, said["traceback"], said["at"], bool(_ECHO.search(text)))
    if one.code is None:
        stack = _main_thread(_read(files.stacks))
        text = "still ran when it was stopped" if not hung else _where(stack)
        return RankFailure(
            one.rank, text, stack, float("inf"), not hung or bool(_WAITING.search(stack)) or not stack
        )
    text, echo = _exit_words(one.code)
    return RankFailure(one.rank, text, _tail(files), 0.0 if not echo else float("inf"), echo)


def _exit_words(code: int) -> tuple[str, bool]:
    if code < 0:
        known = -code in {one.value for one in signal.Signals}  # the real-time signals between have no name
        name = signal.Signals(-code).name if known else f"signal {-code}"
        reason = {
            "SIGKILL": " (often the kernel's out-of-memory killer)",
            "SIGSEGV": " (a crash in native code)",
            "SIGABRT": " (an abort in native code; often the echo of another rank's failure)",
        }.get(name, "")
        return f"killed by {name}{reason}", name == "SIGABRT"
    return f"ended with exit code {code} and left no exception", False


def _main_thread(stacks: str) -> str:
    """The main thread's frames, innermost first: faulthandler writes that thread last."""
    return shown_stack(stacks.rstrip().rpartition("\n\n")[2])


def _where(stack: str) -> str:
    frames = [line.strip() for line in stack.splitlines() if line.strip().startswith("File ")]
    own = [frame for frame in frames if "/torch/" not in frame]
    return f"stuck at {own[0]}" if own else "stuck, and its stack could not be read"


def _words(
    first: RankFailure, failures: list[RankFailure], who: str, hung: bool, timeout_s: float, apart: str
) -> str:
    others = sorted(one.rank for one in failures if one is not first)
    if hung:
        opening = f"{who} hangs: no rank made progress for {timeout_s:g} s. Rank {first.rank} is {first.text}"
        others_at = "".join(f"\n  rank {one.rank}: {one.text}" for one in failures if one is not first)
        opening += f"\nwhere the others are:{others_at}" if others else ""
    else:
        opening = f"{who} failed on rank {first.rank}: {first.text}"
    if others and not hung:
        opening += f"\n(rank {', '.join(map(str, others))} failed or was stopped because of it)"
    if apart:
        opening += f"\n{apart}"
    whole = opening + (f"\n{first.traceback.rstrip()}" if first.traceback else "")
    return "\n".join(map(_shortened, whole.splitlines()))


def _shortened(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} [...]"


def meant_by_calls(apart: str) -> str:
    """What it says of the job that ranks part at these calls; "" where nothing."""
    unit = re.findall(r": reduce-scatter of [\d,]+ \w+ for (.+)$", apart, re.MULTILINE)
    if len(unit) > 1 and len(set(unit)) == 1:
        return (
            "ranks reduce other numbers of gradients for the same unit: some of its parameters take no part "
            "in the loss on some ranks (experts without tokens, a skipped branch), which FSDP1 reduced all "
            "the same. Call model.set_reduce_scatter_unused_params(True) (torch 2.13 and later), or let "
            "every parameter take part on every rank (0 * its output)"
        )
    if A_DTENSOR not in apart:
        return _meant_by_gathers(apart)
    return (
        "a DTensor is gathered on some ranks only: full_tensor(), and what needs it (norms, prints, saving), "
        "belongs before `if rank == 0`, on every rank"
    )


def _meant_by_gathers(apart: str) -> str:
    units = re.findall(r": all-gather of [\d,]+ \w+ for (.+) \(\w+\)$", apart, re.MULTILINE)
    if len(set(units)) < 2:
        return ""
    return (
        "a unit is called on some ranks and not on others (experts without tokens, a branch that depends on "
        "the data, a call by rank 0 alone), and every rank takes part in gathering it: make a module that "
        "all ranks call the unit (the block instead of its experts), or call it on every rank"
    )


def _over(ranks: list[int]) -> str:
    """Of ranks that are through with the script while others wait for them."""
    return f"(rank {', '.join(map(str, ranks))} came to the end of the script)" if ranks else ""


def asked_for_gpu(substitutions: Iterable[str]) -> str:
    """What to do about a script that ended because it found no GPU, to be added to a hint."""
    if "torch.cuda.is_available() answers False" not in substitutions:
        return ""
    return (
        "; it asked torch.cuda.is_available(), which answers False in a rehearsal: where it insists on a "
        "GPU, --as-gpu makes that True"
    )


def _substitutions(events: Path) -> set[str]:
    """What stood in for what, as one rank told it."""
    lines = _read(events).splitlines()
    return {json.loads(line)["text"] for line in lines if '"substitution"' in line and line.endswith("}")}


def _hint(hung: bool) -> str:
    logs = "--keep DIR keeps the logs of every rank"
    if hung:
        return (
            "the ranks do not all make the same collective calls: look for a branch that only some ranks "
            "take, "
            f"or raise --timeout if the job is slow; {logs}"
        )
    return f"run the script by itself under torchrun to see whether it fails there too; {logs}"


def _tail(files: RankFiles) -> str:
    return "\n".join(_read(files.stderr).splitlines()[-_TAIL_LINES:])


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
