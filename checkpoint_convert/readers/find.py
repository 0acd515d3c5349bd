"""From the paths a user gives (files, directories, globs) to the files that hold a checkpoint, by content."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpoint_convert.errors import CheckpointError, UnreadableError, UnsupportedError
from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.torch_file import read_torch_file

_DEEPSPEED = re.compile(r"zero_pp_rank_\d+|_optim_states\.pt$|mp_rank_\d+_model_states\.pt$")
_TORCH_SUFFIXES = frozenset({".pt", ".pth", ".bin", ".ckpt", ".pkl", ".tar", ".torch"})
_OTHER_ZIPS = frozenset({".zip", ".npz", ".whl", ".docx", ".xlsx", ".jar", ".ipynb"})
METADATA = ".metadata"
_DEPTH = 4
_SNAPSHOT = ".snapshot_metadata"
OLMO_LOCAL = (
    "Their flat parameters are in the form of the torch that saved them. OLMo's own scripts/unshard.py "
    "(--type local) writes full files, which are read."
)


@dataclass(frozen=True, slots=True)
class Found:
    """The files behind the paths, by what their first bytes say.

    Attributes:
        torch_files: written by `torch.save` (or bare pickles).
        dcp: directories with a `.metadata`.
        safetensors: safetensors files.
        unread: directories in given ones that hold checkpoint files and were not given.
    """

    torch_files: tuple[Path, ...]
    dcp: tuple[Path, ...]
    safetensors: tuple[Path, ...]
    unread: tuple[Path, ...] = ()


def find(paths: Sequence[Path]) -> Found:
    """Look behind paths.

    Raises:
        UnreadableError: a path that does not exist, or nothing there that is a checkpoint.
        UnsupportedError: a DeepSpeed checkpoint.
    """
    kinds: dict[str, dict[Path, None]] = {kind: {} for kind in ("torch", "dcp", "safetensors", "unread")}
    for path in paths:
        for kind, found in _look_behind(Path(path)):
            if kind != "ignored":
                kinds[kind][found] = None
    given = {Path(path).resolve() for path in paths}
    kinds["unread"] = {
        path: None
        for path in kinds["unread"]
        if not any(one == path.resolve() or path.resolve() in one.parents for one in given)
    }
    result = Found(*(tuple(files) for files in kinds.values()))
    if not (result.torch_files or result.dcp or result.safetensors):
        for path in paths:
            for below in sorted(path.iterdir()) if path.is_dir() else ():
                _refuse_without_metadata(below)
        raise _nothing(paths)
    return result


def _nothing(paths: Sequence[Path]) -> UnreadableError:
    """No checkpoint is there; what is a step below, only its owner can put together."""
    filled = [folder for path in paths if path.is_dir() for folder in _filled(path, 0)]
    hint = (
        "Give files that torch.save wrote, a distributed checkpoint directory (with its .metadata), "
        "or safetensors files."
    )
    if filled:
        hint = f"There is something in {', '.join(map(str, filled[:6]))}: give what belongs to one save."
    return UnreadableError(f"{', '.join(map(str, paths))}: no checkpoint there", hint=hint)


def _filled(directory: Path, depth: int) -> Iterator[Path]:
    """The nearest directories below that hold checkpoint files."""
    for entry in sorted(directory.iterdir()):
        if not entry.is_dir() or entry.is_symlink() or not os.access(entry, os.R_OK | os.X_OK):
            continue
        if _has_files(entry) or (entry / METADATA).is_file():
            yield entry
        elif depth < _DEPTH:
            yield from _filled(entry, depth + 1)


def _has_files(folder: Path) -> bool:
    return any(
        entry.is_file() and entry.suffix in {*_TORCH_SUFFIXES, ".safetensors"} for entry in folder.iterdir()
    )


def _look_behind(path: Path) -> Iterator[tuple[str, Path]]:
    if path.is_dir():
        yield from _look_into(path)
    elif path.exists():
        yield _kind_of_given(path)
    elif any(mark in str(path) for mark in "*?["):
        matches = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        if not matches:
            raise UnreadableError(f"{path}: matches no file", hint="Quote the pattern and check the path.")
        for match in matches:
            yield from _look_behind(match)
    else:
        raise UnreadableError(f"{path}: no such file or directory", hint="Check the path.")


def _look_into(directory: Path) -> Iterator[tuple[str, Path]]:
    _refuse_without_metadata(directory)
    _refuse_other_tools(directory)
    if (directory / METADATA).is_file():
        yield "dcp", directory
    for entry in sorted(directory.iterdir(), key=_natural):
        if entry.is_dir() and (entry / METADATA).is_file():
            yield "dcp", entry
        elif entry.is_dir() and os.access(entry, os.R_OK | os.X_OK) and _has_files(entry):
            yield "unread", entry
        elif not entry.exists() and entry.suffix in {*_TORCH_SUFFIXES, ".safetensors", ".distcp"}:
            raise UnreadableError(
                f"{entry}: is a link to {entry.readlink()}, which is not there",
                hint="Bring it back, or remove the link if it is of no part of the checkpoint.",
            )
        elif entry.is_file() and entry.name != METADATA:
            yield _kind(entry), entry


def _refuse_without_metadata(directory: Path) -> None:
    if (directory / METADATA).is_file() or not any(directory.glob("*.distcp")):
        return
    raise UnreadableError(
        f"{directory}: its {METADATA} is missing, which says what lies where in its .distcp files",
        hint=f"{METADATA} is written last: the save did not finish, or a copy left hidden files out.",
    )


def _refuse_other_tools(directory: Path) -> None:
    if (directory / _SNAPSHOT).is_file():
        raise UnsupportedError(
            f"{directory}: is a torchsnapshot, whose {_SNAPSHOT} and raw buffers are not read",
            hint="Restore it with torchsnapshot into the state dict it was taken of, save that with "
            "torch.save or torch.distributed.checkpoint, and convert the result.",
        )
    first = next(iter(sorted((directory / "model").glob("rank*.pt"))), None)
    if first is not None and _is_of_olmo(first):
        raise UnsupportedError(f"{directory}: is one of OLMo's local checkpoints", hint=OLMO_LOCAL)


def _is_of_olmo(path: Path) -> bool:
    files = OpenFiles()
    try:
        return is_olmo_local(read_torch_file(files, path).value)
    except (CheckpointError, OSError):
        return False  # it is not asked for, only what is around it
    finally:
        files.close()


def is_olmo_local(value: object) -> bool:
    """Whether that is what a rank's file of OLMo's local checkpoints holds: its modules' flat parameters."""
    modules = value.get("modules") if isinstance(value, dict) else None
    return isinstance(modules, list) and any(isinstance(one, dict) and "handles" in one for one in modules)


def _kind_of_given(path: Path) -> tuple[str, Path]:
    if path.name == _SNAPSHOT:
        _refuse_other_tools(path.parent)
    if path.name == METADATA or path.suffix == ".distcp":
        _refuse_without_metadata(path.parent)
        return "dcp", path.parent
    if path.name.endswith(".safetensors.index.json"):
        return "safetensors", path
    kind = _kind(path)
    if kind == "ignored":
        raise UnreadableError(
            f"{path}: is no checkpoint: it begins with {_head(path)[:8]!r}",
            hint="Give a file that torch.save or safetensors wrote.",
        )
    return kind, path


def _kind(path: Path) -> str:
    if _DEEPSPEED.search(path.name):
        raise UnsupportedError(
            f"{path}: is part of a DeepSpeed checkpoint",
            hint="Run DeepSpeed's own zero_to_fp32.py or ds_to_universal first and convert what it writes.",
        )
    head = _head(path)
    if path.suffix in _OTHER_ZIPS or path.suffix == ".distcp":
        return "ignored"
    if path.suffix == ".safetensors" or (head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 28):
        return "safetensors"
    if head.startswith((b"PK\x03\x04", b"\x80")) or path.suffix in _TORCH_SUFFIXES:
        return "torch"
    return "ignored"


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as handle:
            return handle.read(16)
    except OSError as error:
        raise UnreadableError(
            f"{path}: cannot be read: {error.strerror}", hint="Check its permissions."
        ) from None


def _natural(path: Path) -> tuple[object, ...]:
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name))
