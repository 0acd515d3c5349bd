"""Which frames of a stack are shown: the job's and torch's, not those of probes that stand between them."""

from __future__ import annotations

import re
from pathlib import Path
from traceback import FrameSummary

_VERIFY = Path(__file__).resolve().parent
_JOB = str(_VERIFY / "reference_job")
_STARTERS = ("<frozen runpy>",)
_FILE = re.compile(r'\s*File "([^"]*)"')


def is_own(filename: str) -> bool:
    """Whether a frame is of the verifier, and of no job; how scripts are started is the verifier's."""
    return filename.startswith((str(_VERIFY), *_STARTERS)) and not filename.startswith(_JOB)


def shown(frames: list[FrameSummary]) -> list[FrameSummary]:
    """Frames of a traceback, the outermost first; an error of a probe keeps those of probes too."""
    while frames and is_own(frames[0].filename):
        frames = frames[1:]
    while frames and frames[-1].name == "__torch_function__" and is_own(frames[-1].filename):
        frames = frames[:-1]  # through which a rehearsal calls torch's own
    is_of_probe = bool(frames) and is_own(frames[-1].filename)
    return [frame for frame in frames if is_of_probe or not is_own(frame.filename)]


def shown_stack(stack: str) -> str:
    """A thread's stack as `faulthandler` writes it, the innermost first."""
    lines = stack.splitlines()
    kept = [line for line in lines if not ((found := _FILE.match(line)) and is_own(found[1]))]
    return "\n".join(kept) if any(_FILE.match(line) for line in kept) else stack
