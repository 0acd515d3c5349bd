"""The laws every rewrite is held to, each a plain comparison of a folder before and after.

Used by the case tests and by `benchmarks/corpus.py`; nothing here asks the rewriter's own analysis.
"""

from __future__ import annotations

import ast
import io
import json
import re
import shutil
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import leftovers

NOT_CONTENT = frozenset({".fsdp-migrate", "__pycache__", ".git", ".ruff_cache"})
RUFF = (sys.executable, "-m", "ruff")
ISOLATED = ("--isolated", "--no-cache", "--line-length", "88")
_OTHERS_CONFIGURATION = ("pyproject.toml", "ruff.toml", ".ruff.toml")
# A comment that only speaks to a linter about a line may go together with that line.
_LINTER_MARKS = ("# noqa", "# type: ignore", "# pylint:", "# pyright:", "# fmt:", "# isort:")


def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def parse_errors(folder: Path) -> set[str]:
    """Files, relative to `folder`, that Python cannot parse."""
    broken = set()
    for path in python_files(folder):
        try:
            ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            broken.add(path.relative_to(folder).as_posix())
    return broken


def ruff_findings(folder: Path, select: str = "F") -> Counter[tuple[str, str, str]]:
    """(path relative to `folder`, code, message) of ruff's rules `select`, in a configuration of nobody's."""
    return _checked(folder, select, *ISOLATED)


def _checked(folder: Path, select: str, *options: str) -> Counter[tuple[str, str, str]]:
    options = *options, "--quiet", "--exit-zero", "--select", select, "--output-format", "json"
    done = subprocess.run(
        [*RUFF, "check", *options, "."], cwd=folder, capture_output=True, text=True, check=True
    )
    root = folder.resolve()
    return Counter(
        (
            Path(entry["filename"]).relative_to(root).as_posix(),
            entry["code"] or "syntax",
            re.sub(r"from line \d+", "from another line", entry["message"]),
        )
        for entry in json.loads(done.stdout)
    )


def unformatted(folder: Path) -> set[str]:
    """Files, relative to `folder`, that `ruff format` would change."""
    return _not_formatted(folder, *ISOLATED)


def _not_formatted(folder: Path, *options: str) -> set[str]:
    done = subprocess.run(
        [*RUFF, "format", *options, "--check", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(?:Would reformat: |\s*--> )([^:\n]+)", done.stdout, flags=re.MULTILINE)
    return {path.strip() for path in found}


class Linted:
    """What ruff says of many folders, from one launch of the linter and one of the formatter.

    Each folder is copied with a configuration of its own, so that ruff takes it for a project: which imports
    are first-party is found out within it, as when the folder is linted alone.

    Attributes:
        findings: of `ruff check`, per folder, as `ruff_findings` gives them.
        unformatted: files that `ruff format` would change, per folder.
    """

    def __init__(self, folders: Iterable[Path], select: str, scratch: Path) -> None:
        names = {str(number): folder for number, folder in enumerate(sorted(folders))}
        for name, folder in names.items():
            shutil.copytree(folder, scratch / name, ignore=shutil.ignore_patterns(*_OTHERS_CONFIGURATION))
            (scratch / name / "ruff.toml").write_text('line-length = 88\nsrc = [".", "src"]\n')
        self.findings = {folder: Counter[tuple[str, str, str]]() for folder in names.values()}
        for (path, code, message), number in _checked(scratch, select, "--no-cache").items():
            name, _, rest = path.partition("/")
            self.findings[names[name]][rest, code, message] = number
        self.unformatted: dict[Path, set[str]] = {folder: set() for folder in names.values()}
        for path in _not_formatted(scratch, "--no-cache"):
            name, _, rest = path.partition("/")
            self.unformatted[names[name]].add(rest)


def introduced(
    before: Counter[tuple[str, str, str]], after: Counter[tuple[str, str, str]]
) -> list[tuple[str, str, str]]:
    """What the linter says of the result and did not say of the input."""
    return sorted((after - before).elements())


def comments(folder: Path) -> Counter[str]:
    """Every comment's text in the folder; files that do not tokenize or parse have none."""
    found: Counter[str] = Counter()
    for path in python_files(folder):
        try:
            tokens = list(tokenize.tokenize(io.BytesIO(path.read_bytes()).readline))
            inside = _fsdp_import_lines(path)
        except (tokenize.TokenError, SyntaxError, ValueError):
            continue
        found.update(
            token.string
            for token in tokens
            if token.type == tokenize.COMMENT
            and token.start[0] not in inside
            and not re.sub("#+ *", "# ", token.string.lower(), count=1).startswith(_LINTER_MARKS)
        )
    return found


def _fsdp_import_lines(path: Path) -> set[int]:
    """Lines of `from torch.distributed... import (...)`: a comment there is about a name and goes with it."""
    return {
        line
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.distributed")
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def lost_comments(before: Path, after: Path) -> list[str]:
    """Comments that are gone; `# x` of an argument that went may have become `# argument: x`."""
    old, new = comments(before), comments(after)
    for comment, number in (new - old).items():
        named = re.fullmatch(r"# \w+: (.+)", comment)
        kept = [gone for gone in old - new if named and gone.lstrip("#").strip() == named[1]]
        for gone in kept[:1]:
            new[gone] += number
    return sorted((old - new).elements())


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of the folder except the rewriter's own records (`.fsdp-migrate/`) and caches."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and NOT_CONTENT.isdisjoint(path.relative_to(folder).parts)
    }


def as_crlf(content: bytes) -> bytes:
    return content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def silent_leftovers(after: Path, findings: set[tuple[str, int]]) -> list[leftovers.Leftover]:
    """FSDP1 names in the result at which neither a finding (path, line) nor a TODO stands."""
    return leftovers.uncovered(leftovers.scan(after), findings, leftovers.todo_lines(after))
