"""The program, as a command and as `python -m fsdp_migrate`: Ctrl-C ends it at once, at any moment.

Imports next to nothing: what the command line needs takes longer to import than one takes to think again.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import FrameType

_INTERRUPTED = 130
_NOT_WRITTEN = 120  # as Python itself leaves when what was printed cannot be written


def main() -> None:
    """Run the program."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it may be ignored: in the background
        # Until a command begins (`cli.app.guarded`) nothing was done that would have to be left in order.
        signal.signal(signal.SIGINT, leave_at_once)
    from fsdp_migrate.cli.app import main as run

    try:
        run()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _end(end.code or 0)
        raise


def leave_at_once(number: int, frame: FrameType | None) -> None:
    """What Ctrl-C does before a command begins."""
    sys.stderr.write("fsdp-migrate: interrupted\n")
    _end(_INTERRUPTED)


def _end(code: int) -> None:
    """Without taking millions of objects apart one by one; what has to be done at exit is done."""
    atexit._run_exitfuncs()  # among it: child processes that wait for more work
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:  # whoever read it has gone
            continue
        except (OSError, ValueError):
            code = code or _NOT_WRITTEN
    os._exit(code)


if __name__ == "__main__":
    main()
