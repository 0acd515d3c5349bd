"""Finds the original of a script and builds the trees both arms run in; the user's files are only read.

Each arm runs in a copy of the project, so that neither writes checkpoints or logs into the user's tree. The
original comes from what `rewrite` recorded (`.fsdp-migrate/manifest.json`), from a git revision, or from a
directory or file.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fsdp_migrate.errors import UsageError
from fsdp_migrate.verify.model import VerifyRequest

MANIFEST = Path(".fsdp-migrate", "manifest.json")
CHECKPOINT = "{checkpoint}"
"""In an argument of the script: the path that its arm resumes from."""
_NOT_COPIED = frozenset(
    {".git", ".fsdp-migrate", ".venv", "venv", "node_modules", "__pycache__", ".hg", ".tox"}
)
_LINKED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Where one arm comes from.

    Args:
        root: the project's directory, copied before the arm runs.
        script: relative to `root`; for a module, its name.
        cwd: working directory relative to `root`; `None` when the user stands outside of the project.
        overlay: what stands in place of files of `root`, by relative path; `None` removes the file.
        words: for the report.
        checkpoint: what it resumes from; "" where nothing is resumed.
    """

    root: Path
    script: str
    cwd: str | None
    overlay: Mapping[str, bytes | None]
    words: str
    checkpoint: str = ""

    def given(self, arguments: Iterable[str]) -> tuple[str, ...]:
        """The arguments of the script in this arm."""
        if not self.checkpoint:
            return tuple(arguments)
        return tuple(word.replace(CHECKPOINT, self.checkpoint) for word in arguments)


def sources(request: VerifyRequest) -> tuple[Source, Source]:
    """Original and candidate of a request.

    Raises:
        UsageError: the script, the manifest, the revision or the directory is missing or damaged; or no
            argument says where the script is to resume from.
    """
    before, after = _sources(request)
    resumed = request.checkpoint
    if resumed is None:
        return before, after
    require_place(request)
    return replace(before, checkpoint=resumed.old), replace(after, checkpoint=resumed.new)


def require_place(request: VerifyRequest) -> None:
    """Of a script that is to resume.

    Raises:
        UsageError: no argument says from where.
    """
    if not any(CHECKPOINT in word for word in request.arguments):
        raise UsageError(
            f"--checkpoint: no argument of the script says {CHECKPOINT}, so that it would not resume from it",
            hint=f"write it where the script takes the path: verify {request.script} ... -- --resume "
            f"{CHECKPOINT}",
        )


def _sources(request: VerifyRequest) -> tuple[Source, Source]:
    script = _candidate_script(request)
    start = script.parent if script is not None else request.cwd
    if request.baseline is None:
        root = _manifest_root(start)
        overlay = _recorded_originals(root)
        words = f"what rewrite recorded in {root / MANIFEST}"
        return _source(request, root, script, overlay, words), _source(
            request, root, script, {}, "working tree"
        )
    given = Path(request.cwd, request.baseline).expanduser()
    if given.exists():
        return _from_path(request, script, given.resolve())
    root = _git_root(start)
    return (
        _source(request, root, script, _revision(root, request.baseline), f"git revision {request.baseline}"),
        _source(request, root, script, {}, "working tree"),
    )


def candidate_source(request: VerifyRequest) -> Source:
    """The working tree alone, for what needs no original.

    Raises:
        UsageError: no such script; or no argument says where it is to resume from.
    """
    source = _candidate_source(request)
    if request.checkpoint is None:
        return source
    require_place(request)
    return replace(source, checkpoint=request.checkpoint.new)


def _candidate_source(request: VerifyRequest) -> Source:
    script = _candidate_script(request)
    if script is None:
        return _source(request, request.cwd.resolve(), None, {}, "working tree")
    for folder in script.parents:
        if (folder / MANIFEST).is_file() or (folder / ".git").exists():
            return _source(request, folder, script, {}, "working tree")
    return _source(request, script.parent, script, {}, "working tree")


def _candidate_script(request: VerifyRequest) -> Path | None:
    if request.as_module:
        return None
    script = Path(request.cwd, request.script).expanduser()
    if not script.is_file():
        raise UsageError(
            f"{request.script}: no such file",
            hint=(
                "give the training script as you would to torchrun; a module is given as: verify -m "
                "package.module"
            ),
        )
    return script.resolve()


def _source(
    request: VerifyRequest, root: Path, script: Path | None, overlay: Mapping[str, bytes | None], words: str
) -> Source:
    cwd = request.cwd.resolve()
    inside = cwd.relative_to(root).as_posix() if cwd.is_relative_to(root) else None
    name = request.script if script is None else script.relative_to(root).as_posix()
    if overlay.get(name, b"") is None:
        raise UsageError(
            f"{name}: this file is not part of the original", hint="--baseline FILE names the original"
        )
    return Source(root, name, inside, overlay, words)


def _manifest_root(start: Path) -> Path:
    for folder in (start, *start.parents):
        if (folder / MANIFEST).is_file():
            return folder
    raise UsageError(
        f"{start}: no {MANIFEST} here or above, so the original is not known",
        hint="name it: --baseline GIT_REF, --baseline DIR or --baseline FILE",
    )


def _recorded_originals(root: Path) -> dict[str, bytes | None]:
    manifest = root / MANIFEST
    try:
        files: list[dict[str, Any]] = json.loads(manifest.read_text(encoding="utf-8"))["files"]
        kept = {
            each["path"]: None
            if each["original"] is None
            else (manifest.parent / each["original"]).read_bytes()
            for each in files
        }
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UsageError(
            f"{manifest}: damaged ({error!r})", hint="name the original: --baseline GIT_REF"
        ) from error
    except OSError as error:
        raise UsageError(f"{manifest}: a recorded original is missing: {error.filename}") from error
    if not kept:
        raise UsageError(f"{manifest}: it names no changed file; there is nothing to compare")
    return kept


def _from_path(request: VerifyRequest, script: Path | None, given: Path) -> tuple[Source, Source]:
    if given.is_file():
        if script is None:
            raise UsageError("--baseline FILE goes with a script, not with a module", hint="--baseline DIR")
        original = _source(request, given.parent, given, {}, f"the file {given}")
        return original, _source(request, script.parent, script, {}, "working tree")
    if script is None:
        candidate = _source(request, request.cwd.resolve(), None, {}, "working tree")
        # In its own copy too: started elsewhere, it would import the candidate's modules.
        return Source(given, candidate.script, candidate.cwd, {}, f"the directory {given}"), candidate
    for folder in script.parents:
        if (given / script.relative_to(folder)).is_file() and folder != given:
            candidate = _source(request, folder, script, {}, "working tree")
            original = Source(given, candidate.script, candidate.cwd, {}, f"the directory {given}")
            return original, candidate
    raise UsageError(f"{given}: it holds no {script.name} at the place the candidate has it")


def _git_root(start: Path) -> Path:
    done = subprocess.run(["git", "rev-parse", "--show-toplevel"], cwd=start, capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"--baseline: neither a file or directory, nor is {start} inside a git repository")
    return Path(done.stdout.strip())


def _revision(root: Path, revision: str) -> dict[str, bytes | None]:
    """Every file of a git revision, and the removal of files that are tracked now and were not there."""
    done = subprocess.run(["git", "archive", "--format=tar", revision], cwd=root, capture_output=True)
    if done.returncode:
        raise UsageError(
            f"--baseline {revision}: no such file, directory or git revision",
            hint=done.stderr.decode(errors="replace").strip(),
        )
    now = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    kept: dict[str, bytes | None] = dict.fromkeys(filter(None, now.split("\0")))
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                kept[member.name] = content.read()
            elif not member.isdir():
                kept.pop(member.name, None)
    return kept


def build_tree(source: Source, destination: Path) -> list[str]:
    """Copy a project and lay the original files over it.

    Returns:
        Relative paths of large files that were linked instead of copied.
    """
    linked: list[str] = []
    destination.mkdir(parents=True)
    for folder, folders, names in os.walk(source.root):
        here = Path(folder).relative_to(source.root)
        folders[:] = sorted(name for name in folders if name not in _NOT_COPIED)
        (destination / here).mkdir(exist_ok=True)
        for name in [name for name in folders if Path(folder, name).is_symlink()]:
            (destination / here / name).symlink_to(Path(folder, name).resolve())
            folders.remove(name)
        # A tree built inside the project (--keep) must not be copied into itself.
        folders[:] = [
            name for name in folders if Path(folder, name) not in (destination, *destination.parents)
        ]
        for name in names:
            path, relative = Path(folder, name), here / name
            if path.is_symlink() and path.exists():
                (destination / relative).symlink_to(path.resolve())
            elif path.is_file() and path.stat().st_size > _LINKED_BYTES:
                (destination / relative).symlink_to(path)
                linked.append(relative.as_posix())
            elif path.is_file():
                shutil.copy2(path, destination / relative)
    _lay_over(destination, source.overlay)
    return linked


def _lay_over(tree: Path, overlay: Mapping[str, bytes | None]) -> None:
    for name, content in overlay.items():
        path = tree / name
        if not path.parent.resolve().is_relative_to(tree.resolve()):
            raise UsageError(f"{name}: a recorded file outside of the project")
        path.unlink(missing_ok=True)
        if content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
