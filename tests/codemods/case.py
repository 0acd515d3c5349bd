"""A case of the rewriter: a folder with `before/`, `after/`, `findings.txt` and, at times, how to run it.

cases/<group>/<construct>/<case>/
    before/         input, one idea
    after/          what `rewrite` makes of it; absent when nothing changes
    findings.txt    one line per finding; absent when there is none
    options.txt     options of `rewrite`, one per line; absent for the defaults
    runs.json       {"runs": [{...}, ...], "rtol": 0.0, "ranks": 2}: the arguments that `main(out, **run)` of
                    `train.py` is called with, before under FSDP1 and after under FSDP2
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import laws
import parity

CASES = Path(__file__).with_name("cases")


@dataclass(frozen=True, slots=True)
class Case:
    folder: Path

    @property
    def id(self) -> str:
        return self.folder.relative_to(CASES).as_posix()

    @property
    def before(self) -> Path:
        return self.folder / "before"

    @property
    def after(self) -> Path:
        """The expected result; `before` itself for a case in which nothing changes."""
        expected = self.folder / "after"
        return expected if expected.exists() else self.before

    @property
    def findings(self) -> str:
        path = self.folder / "findings.txt"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @property
    def options(self) -> list[str]:
        path = self.folder / "options.txt"
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    def jobs(self) -> list[parity.Job]:
        path = self.folder / "runs.json"
        if not path.exists():
            return []
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return [
            parity.Job(
                id=f"{self.id}[{','.join(str(value) for value in run.values()) or 'run'}]",
                before=self.before,
                after=self.after,
                configuration=run,
                rtol=told.get("rtol", 0.0),
                ranks=told.get("ranks", 2),
            )
            for run in told["runs"]
        ]

    def accept(self, result: Path, findings: str) -> None:
        """Make what came out the expectation."""
        shutil.rmtree(self.folder / "after", ignore_errors=True)
        written = laws.contents(result)
        if written != laws.contents(self.before):
            for name, content in written.items():
                target = self.folder / "after" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        path = self.folder / "findings.txt"
        if findings:
            path.write_text(findings, encoding="utf-8")
        else:
            path.unlink(missing_ok=True)


def all_cases() -> list[Case]:
    return [Case(path.parent) for path in sorted(CASES.glob("*/*/*/before"))]
