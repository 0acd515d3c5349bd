"""A conversion held against its own report, at any later time: is every byte still what was written?"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from checkpoint_convert import digest
from checkpoint_convert.destination import REPORT_NAME, beside
from checkpoint_convert.errors import CheckpointError, UnreadableError
from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.frames import damaged_frame
from checkpoint_convert.model import Contents, TensorSource, Value, size_bytes
from checkpoint_convert.parallel import Workers
from checkpoint_convert.plan import plan_items
from checkpoint_convert.progress import Progress
from checkpoint_convert.readers.open import ReadOptions, open_source
from checkpoint_convert.reopened import Beside, Entries, Whole, reopened
from checkpoint_convert.report import FORMAT_VERSION
from checkpoint_convert.values import dotted, is_tensor
from checkpoint_convert.write_options import OPTIM_KEY, OutputFormat, Preset, TiedPolicy, WriteOptions

_Tensors: TypeAlias = dict[str, TensorSource]
_Values: TypeAlias = Mapping[str, Value]

_NEEDED = {
    "keys": ("model", "optim"),
    "files": ("name", "size_bytes"),
    "tensors": ("key", "dtype", "shape", "digest"),
    "values": ("key", "digest"),
}
"""Parts of a report and what is looked at in each of their rows."""


@dataclass(frozen=True, slots=True)
class Recheck:
    """What a conversion was found to be.

    Attributes:
        tensors: names whose bytes have the digest of the report.
        values: the same of plain values (hyper-parameters, epoch, scheduler, ...).
        unread: names that share the source's files (`--link`): found, of the right dtype and shape; the
            report has no digest of them.
        size_bytes: bytes read.
        problems: what differs from the report, each with the name it is about.
    """

    tensors: int
    values: int
    unread: int
    size_bytes: int
    problems: tuple[str, ...]


def recheck(target: Path, workers: Workers, progress: Progress) -> Recheck:
    """Read a conversion's output again and compare it with `conversion.json`.

    Args:
        target: what `convert-ckpt` wrote: a directory, or a file with its report beside it.

    Raises:
        UnreadableError: there is no report, or it cannot be understood.
    """
    report = _read_report(target)
    problems = list(_file_problems(target, report))
    rows: dict[str, dict[str, Any]] = {place: row for row in report["tensors"] for place in _places(row)}
    with contextlib.ExitStack() as stack:
        try:
            found, values = stack.enter_context(_opened(target, report))
        except CheckpointError as error:
            return Recheck(0, 0, 0, 0, (*problems, f"it cannot be opened: {error.message}"))
        problems += [f"{key} is not in the report" for key in found if key not in rows]
        present = {key: row for key, row in rows.items() if key in found}
        gone = [key for key in rows if key not in found]
        problems += [f"{key} is gone" for key in gone]
        headers = {key: _header_problem(found[key], row) for key, row in present.items()}
        problems += [f"{key} is {was}" for key, was in headers.items() if was]
        wanted = [key for key, row in present.items() if row["digest"] and not headers[key]]
        damaged = _damaged({key: found[key] for key in wanted}, rows, workers, progress)
        size = sum(size_bytes(found[key]) for key in wanted)
        known = {place for row in report["values"] for place in _places(row)}
        problems += [f"{key} is not in the report" for key in values if key not in known]
        differing = [
            (row["key"], problem) for row in report["values"] for problem in _value_problems(values, row)
        ]
    problems += [*damaged.values(), *(problem for _, problem in differing)]
    unread = sum(1 for key, row in present.items() if not row["digest"] and not headers[key])
    wrong = [*damaged, *gone, *(key for key, was in headers.items() if was)]
    equal = {rows[key]["key"] for key in wanted} - {rows[key]["key"] for key in wrong}
    equal_values = len(report["values"]) - len({key for key, _ in differing})
    return Recheck(len(equal), equal_values, unread, size, tuple(problems))


def _places(row: Mapping[str, Any]) -> Sequence[str]:
    """Where a thing of the report stands: under its key, or under the keys of a loader."""
    places: Sequence[str] = row.get("at", (row["key"],))
    return places


def _read_report(target: Path) -> dict[str, Any]:
    path = target / REPORT_NAME if target.is_dir() else beside(target, f".{REPORT_NAME}")
    hint = "name a directory or file that convert-ckpt wrote; inspect-ckpt reads any checkpoint"
    if not target.exists():
        raise UnreadableError(f"{target} does not exist", hint=hint)
    try:
        report = json.loads(path.read_bytes())
        version, algorithm = report["version"], report["digest"]
    except FileNotFoundError as error:
        raise UnreadableError(f"{target} has no report: {path} does not exist", hint=hint) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableError(f"{path} is no report of a conversion ({error})", hint=hint) from error
    if version != FORMAT_VERSION or algorithm != digest.NAME:
        raise UnreadableError(
            f"{path} is of version {version} with {algorithm} digests, this program knows version "
            f"{FORMAT_VERSION} with {digest.NAME}",
            hint="check it with the fsdp-migrate that wrote it",
        )
    try:
        _look_at_all(report)
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableError(f"{path} is damaged ({error!r})", hint=hint) from error
    assert isinstance(report, dict)
    return report


def _look_at_all(report: Mapping[str, Any]) -> None:
    """Ask for everything that is needed later, so that what is missing is missed here."""
    OutputFormat(report["to"]), Preset(report["layout"])
    for part, names in _NEEDED.items():
        for row in (report[part],) if part == "keys" else report[part]:
            for name in names:
                row[name]
    if not isinstance(report.get("file_digests", {}), dict):
        raise TypeError("file_digests are no mapping")


def _file_problems(target: Path, report: Mapping[str, Any]) -> Iterator[str]:
    for file in report["files"]:
        path = target / file["name"] if target.is_dir() else target
        try:
            size = path.stat().st_size
        except OSError as error:
            yield f"file {file['name']}: {error.strerror}"
            continue
        if size != file["size_bytes"]:
            yield f"file {file['name']} has {size:,} bytes, {file['size_bytes']:,} were written"
    with contextlib.closing(OpenFiles()) as files:
        for name, expected in report.get("file_digests", {}).items():
            path = target / name
            try:
                if path.is_file() and digest.of_file(files, path).hex() != expected:
                    yield f"file {name} has other bytes than were written"
            except UnreadableError as error:
                yield f"file {name} cannot be read: {error.message}"


@contextlib.contextmanager
def _opened(target: Path, report: Mapping[str, Any]) -> Iterator[tuple[_Tensors, _Values]]:
    """The output's tensors and plain values by where they stand."""
    keys = report["keys"]
    read = ReadOptions(model_key=keys["model"], names_are_exact=True)
    to, preset = OutputFormat(report["to"]), Preset(report["layout"])
    names = {file["name"] for file in report["files"]}
    with reopened(target, to, preset, names, lambda path: open_source([path], read)) as output:
        match output:
            case Whole(contents):
                yield _planned(contents, to, keys)
            case Entries(by_place):
                tensors = {key: value for key, value in by_place.items() if is_tensor(value)}
                yield tensors, {key: value for key, value in by_place.items() if key not in tensors}  # type: ignore[misc]
            case Beside(model, optimizer, groups):
                found = dict(_named("model", model))
                found.update(_named(OPTIM_KEY, optimizer))
                yield found, {**_stateless(report), **_by_key(groups)}


def _planned(contents: Contents, to: OutputFormat, keys: Mapping[str, str]) -> tuple[_Tensors, _Values]:
    """What a conversion of the output itself would write."""
    # A second name of a tensor is a row of its own in the report, so it is one here.
    options = WriteOptions(to=to, tied=TiedPolicy.KEEP, model_key=keys["model"], optim_key=keys["optim"])
    items = plan_items(contents, options)
    found = {dotted(item.path): item.source for item in items.tensors}
    found.update({dotted(item.path): found[dotted(item.of)] for item in items.shared})
    return found, {dotted(leaf.path): leaf.value for leaf in items.objects}


def _named(key: str, contents: Contents | None) -> Iterator[tuple[str, TensorSource]]:
    for name, source in contents.model.items() if contents is not None else ():
        yield f"{key}.{name}", source


def _stateless(report: Mapping[str, Any]) -> _Values:
    """The state of an optimizer that has none, for which safetensors files have no place."""
    empty: _Values = {f"{OPTIM_KEY}.state": {}}
    return empty if any(empty.keys() & set(_places(row)) for row in report["values"]) else {}


def _by_key(groups: Sequence[Mapping[str, object]]) -> _Values:
    return {
        f"{OPTIM_KEY}.param_groups.{number}.{name}": cast("Value", value)
        for number, group in enumerate(groups)
        for name, value in group.items()
    }


def _value_problems(values: Mapping[str, Value], row: Mapping[str, Any]) -> Iterator[str]:
    for place in _places(row):
        if place not in values:
            yield f"{place} is gone"
        elif digest.of_value(values[place]).hex() != row["digest"]:
            yield f"{place} is not what was written"


def _header_problem(source: TensorSource, row: Mapping[str, Any]) -> str:
    """What a tensor is instead of what the report says; empty where it is that."""
    if (source.dtype.torch_name, list(source.shape)) == (row["dtype"], row["shape"]):
        return ""
    return f"{source.dtype.torch_name} {list(source.shape)}, {row['dtype']} {row['shape']} was written"


def _damaged(
    tensors: Mapping[str, TensorSource],
    rows: Mapping[str, Mapping[str, Any]],
    workers: Workers,
    progress: Progress,
) -> dict[str, str]:
    """Names whose bytes are not what the report says, in the report's order, and what is wrong."""
    keys = list(tensors)
    sizes = [size_bytes(tensors[key]) for key in keys]
    progress.phase("checking", sum(sizes))
    problems: dict[str, str] = {}

    def work(number: int) -> None:
        key = keys[number]
        workers.check()
        try:
            if digest.of_tensor(tensors[key]).hex() != rows[key]["digest"]:
                problems[key] = f"{key} has other bytes than were written"
            elif place := damaged_frame(tensors[key]):
                problems[key] = f"{key}: what torch needs around its bytes is not what was written ({place})"
        except UnreadableError as error:
            problems[key] = f"{key} cannot be read: {error.message}"
        progress.advance(sizes[number])

    workers.run(work, sizes)
    return {key: problems[key] for key in keys if key in problems}
