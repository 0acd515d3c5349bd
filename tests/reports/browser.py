"""A browser driven through its own debugging pipe (Chrome DevTools Protocol)."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LIMIT_S = 60.0


def installed() -> str | None:
    """The path of a browser that speaks the protocol; None where there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of one browser."""

    def __init__(self, process: subprocess.Popen[bytes], reads: int, writes: int) -> None:
        self._process, self._reads, self._writes = process, reads, writes
        self._number, self._rest, self._session = 0, b"", ""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")
        self.ask("Runtime.enable")

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """One command to the page, and its answer."""
        return self._ask(method, self._session, **parameters)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        done = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a page anew and wait until it stands."""
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=page.as_uri() + fragment)
        end = time.monotonic() + _LIMIT_S
        while self.run("document.readyState + location.protocol") != "completefile:":
            assert time.monotonic() < end, f"{page} does not load"
            time.sleep(0.02)

    def width(self, pixels: int) -> None:
        """Make the window so wide."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=pixels,
            height=800,
            deviceScaleFactor=1,
            mobile=pixels < 600,
        )

    def _ask(self, method: str, session: str = "", **parameters: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], _LIMIT_S)
            data = os.read(self._reads, 1 << 20) if ready else b""
            assert data, "the browser does not answer"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def browser(program: str) -> Iterator[Browser]:
    """Start a browser without a window, and end it."""
    to_it, ours = os.pipe()
    reads, its_out = os.pipe()

    def pipes() -> None:
        # The protocol is spoken on descriptors 3 and 4; copies beyond keep one from overwriting the other.
        first, second = os.dup2(to_it, 60), os.dup2(its_out, 61)
        os.dup2(first, 3)
        os.dup2(second, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            preexec_fn=pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_it)
        os.close(its_out)
        try:
            yield Browser(process, reads, ours)
        finally:
            process.kill()
            process.wait()
            os.close(reads)
            os.close(ours)
