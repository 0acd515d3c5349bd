"""Files: which to look at, and their text with encoding, BOM and newlines kept."""

from __future__ import annotations

import re
import subprocess
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any

from codemods.errors import CodemodError

if TYPE_CHECKING:
    import pathspec

SKIPPED_DIRECTORIES = frozenset(
    {
        ".git",
        ".hg",
        ".venv",
        "venv",
        "node_modules",
        "__pycache__",
        ".fsdp-migrate",
        ".mypy_cache",
        ".ruff_cache",
        ".tox",
        ".nox",
        "site-packages",
    }
)
"""Folders in which no code of the repository lies."""
CONFIG_SUFFIXES = frozenset(
    {".yaml", ".yml", ".json", ".sh", ".bash", ".slurm", ".sbatch", ".mk", ".mak", ".dockerfile"}
)
"""Endings of configuration files and launch scripts."""
_CONFIG_NAME = re.compile(r"(?:GNU)?[Mm]akefile(?:\..+)?|Dockerfile(?:\..+)?|Containerfile")
_SUFFIXES = frozenset({".py", ".ipynb"})
_FSDP_WORDS = (b"fsdp", b"fullysharded", b"fully_shard")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One decoded Python file.

    Attributes:
        path: relative to the target, forward slashes.
        text: decoded, newlines as in the file, without the BOM.
        encoding: as Python finds it (PEP 263); `utf-8-sig` where a BOM stands.
        newline: the file's commonest line ending.
    """

    path: str
    data: bytes
    text: str
    encoding: str
    newline: str

    def encoded(self, text: str) -> bytes:
        """The bytes of a new version of this file."""
        return text.encode(self.encoding)


def decode(path: str, data: bytes) -> SourceFile:
    """Decode a file as Python would.

    Raises:
        SyntaxError: unknown or contradictory encoding declaration.
        UnicodeDecodeError: bytes that the encoding does not allow.
    """
    lines = iter(data.splitlines(keepends=True))
    encoding, _ = tokenize.detect_encoding(lambda: next(lines, b""))
    text = data.decode(encoding)
    crlf, lf = text.count("\r\n"), text.count("\n")
    lone = text.count("\r") - crlf  # the line ending of the oldest Macs, which Python still reads
    newline = "\r" if lone > lf else "\r\n" if crlf * 2 > lf else "\n"
    return SourceFile(path, data, text, encoding, newline)


def is_configuration_name(path: PurePath) -> bool:
    """Whether a file is a configuration file or launch script, by its name."""
    if path.suffix in _SUFFIXES:
        return False
    return path.suffix.lower() in CONFIG_SUFFIXES or _CONFIG_NAME.fullmatch(path.name) is not None


def names_fsdp(data: bytes) -> bool:
    """The byte prefilter: whether a file says FSDP anywhere."""
    lower = data.lower()  # three times as fast as a pattern that ignores case
    return any(word in lower for word in _FSDP_WORDS)


def is_configuration(path: str) -> bool:
    """The same of a path relative to the target."""
    return is_configuration_name(PurePosixPath(path))


def any_names_fsdp(target: Path, files: Iterable[str]) -> bool:
    """Whether there is anything to do: some file says FSDP, or cannot be read and has to be reported."""
    for name in files:
        try:
            with open(f"{target}/{name}", "rb") as stream:  # noqa: PTH123 - thousands of paths are made for it
                if names_fsdp(stream.read()):
                    return True
        except OSError:
            return True
    return False


def find_files(target: Path, paths: Sequence[Path], *, exclude: Iterable[str] = ()) -> list[str]:
    """Python, notebooks, configuration and launch scripts under `paths`; what git ignores is left out.

    A file named itself is always taken.

    Returns:
        Paths relative to `target`, forward slashes, sorted. One that ends in a slash is a directory that
        cannot be listed.

    Raises:
        CodemodError: a path does not exist.
    """
    found: set[str] = set()
    for path in paths:
        if path.is_file():
            found.add(path.resolve().relative_to(target).as_posix())
        elif path.is_dir():
            found.update(_files_under(target, path.resolve()))
        else:
            raise CodemodError(f"{path} does not exist", hint="Name Python files or directories.")
    patterns = list(exclude)
    if not patterns:
        return sorted(found)
    import pathspec

    spec = pathspec.PathSpec.from_lines("gitignore", patterns)
    return sorted(name for name in found if not spec.match_file(name))


def _files_under(target: Path, directory: Path) -> list[str]:
    names, closed = _git_files(directory), frozenset[Path]()
    if names is None:
        names, closed = _walk(directory)
    kept = []
    for path in names:
        relative = path.relative_to(target)
        if path in closed:
            kept.append(f"{relative.as_posix()}/")
        elif _is_wanted(path, target):
            kept.append(relative.as_posix())
    return kept


def _is_wanted(path: Path, target: Path) -> bool:
    """Whether it is a file that may concern us; a link to a file of the target is that file again."""
    is_ours = path.suffix in _SUFFIXES or is_configuration_name(path)
    if not is_ours or SKIPPED_DIRECTORIES.intersection(path.relative_to(target).parts):
        return False
    try:
        return path.is_file() and not (path.is_symlink() and path.resolve().is_relative_to(target))
    except OSError:
        return True  # who reads it says why it cannot be read


def _git_files(directory: Path) -> list[Path] | None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, check=False)
    except OSError:
        return None
    if done.returncode != 0:
        return None
    return [directory / name for name in done.stdout.decode(errors="surrogateescape").split("\0") if name]


def _walk(directory: Path) -> tuple[list[Path], frozenset[Path]]:
    """Every file, honouring `.gitignore` files outside git too; and the directories that cannot be listed."""
    found: list[Path] = []
    closed: set[Path] = set()

    def visit(folder: Path, specs: list[tuple[Path, pathspec.PathSpec[Any]]]) -> None:
        ignore = folder / ".gitignore"
        if ignore.is_file():
            import pathspec

            lines = ignore.read_text(errors="replace").splitlines()
            specs = [*specs, (folder, pathspec.PathSpec.from_lines("gitignore", lines))]
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            found.append(folder)
            closed.add(folder)
            return
        for entry in entries:
            name = "/" if entry.is_dir() else ""
            if any(spec.match_file(entry.relative_to(base).as_posix() + name) for base, spec in specs):
                continue
            if entry.is_dir() and not entry.is_symlink():
                if entry.name not in SKIPPED_DIRECTORIES:
                    visit(entry, specs)
            elif entry.is_file():
                found.append(entry)

    visit(directory, [])
    return found, frozenset(closed)
