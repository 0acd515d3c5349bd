"""What `inspect-ckpt` prints, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from checkpoint_convert.errors import CheckpointError
from checkpoint_convert.model import Contents, Notice, Opaque, OptimizerContents, TensorSource, Value, numel
from checkpoint_convert.optim_groups import complete_group
from checkpoint_convert.optim_items import optimizer_values
from checkpoint_convert.raw_contents import RawEntry
from checkpoint_convert.values import is_tensor
from fsdp_migrate.reports.conversion import LOADABLE, Write, describe_source, human_bytes, shortened

Row = Mapping[str, object]

_LONG = 60


def contents_text(write: Write, sources: Sequence[Path], contents: Contents) -> None:
    """A table of everything in a checkpoint."""
    write(f"{', '.join(map(str, sources))}: {describe_source(contents)}\n")
    if contents.loadable_as_is:
        write(f"  {LOADABLE}\n")
    if contents.model:
        distinct = [source for name, source in contents.model.items() if name not in contents.aliases]
        elements = sum(numel(source.shape) for source in distinct)
        write(f"\nmodel: {len(contents.model)} tensors, {elements:,} elements\n")
        _table(write, list(_model_rows(contents)))
    if contents.optimizer is not None:
        write(f"\noptimizer: {len(contents.optimizer.groups)} groups\n")
        for group in _group_rows(contents.optimizer):
            options = ", ".join(f"{key}={value}" for key, value in _mapping(group["options"]).items())
            write(f"  {group['optimizer'] or 'unknown class'}, {group['parameters']} parameters: {options}\n")
        _table(write, list(_state_rows(contents.optimizer)))
    if contents.extras:
        write("\nextras\n")
        for key, value in contents.extras.items():
            write(f"  {key}: {describe_value(value)}\n")
    _notices_text(write, _notices(contents))


def contents_json(write: Write, sources: Sequence[Path], contents: Contents) -> None:
    """The same for programs."""
    optimizer = contents.optimizer
    record = {
        "version": 1,
        "sources": [str(path) for path in sources],
        "format": contents.format.value,
        "world_size": contents.world_size,
        "saver_torch": contents.saver_torch,
        "loadable_as_is": contents.loadable_as_is,
        "model": list(_model_rows(contents)),
        "optimizer": optimizer and {"groups": _group_rows(optimizer), "state": list(_state_rows(optimizer))},
        "extras": {str(key): describe_value(value) for key, value in contents.extras.items()},
        "notices": [{"code": notice.code, "text": notice.text} for notice in _notices(contents)],
    }
    write(json.dumps(record, indent=1) + "\n")


def raw_text(
    write: Write, sources: Sequence[Path], entries: Sequence[RawEntry], missing: CheckpointError
) -> None:
    """What stands in the files, and what a conversion needs to know besides."""
    write(f"{', '.join(map(str, sources))}\n\nto convert it: {missing.message}\n")
    if missing.hint:
        write(f"  {missing.hint}\n")
    for file in dict.fromkeys(entry.file for entry in entries):
        write(f"\n{file}\n")
        _table(write, [_raw_row(entry) for entry in entries if entry.file == file])


def raw_json(
    write: Write, sources: Sequence[Path], entries: Sequence[RawEntry], missing: CheckpointError
) -> None:
    """The same for programs."""
    record = {
        "version": 1,
        "sources": [str(path) for path in sources],
        "missing": {"message": missing.message, "hint": missing.hint},
        "tensors": [{"file": str(entry.file), **_raw_row(entry)} for entry in entries],
    }
    write(json.dumps(record, indent=1) + "\n")


def describe_value(value: Value) -> str:
    """A value in a few words."""
    if is_tensor(value):
        return f"tensor {value.dtype.torch_name} {_dimensions(value.shape)}"
    if isinstance(value, Opaque):
        return f"object of class {value.class_name} (not carried over)"
    if isinstance(value, Mapping):
        return (
            f"{len(value)} entries: {', '.join(map(str, list(value)[:8]))}{', ...' if len(value) > 8 else ''}"
        )
    text = repr(value)
    return text if len(text) <= _LONG else f"{type(value).__name__}, {text[:_LONG]}..."


def _notices(contents: Contents) -> list[Notice]:
    found = list(contents.notices)
    if contents.optimizer is not None:
        found += optimizer_values(contents, fill_missing=False).notices
    return found


def _notices_text(write: Write, notices: Sequence[Notice]) -> None:
    if notices:
        write("\nwhen converted\n")
    for notice in notices:
        write(f"  {notice.code}: {shortened(notice.text)}\n")


def _model_rows(contents: Contents) -> Iterator[Row]:
    for name, source in contents.model.items():
        row = _tensor_row(name, source)
        yield {**row, "tied_to": contents.aliases[name]} if name in contents.aliases else row


def _group_rows(optimizer: OptimizerContents) -> list[Row]:
    return [
        {
            "optimizer": complete_group(group.options).optimizer,
            "parameters": len(group.params),
            "options": {key: describe_value(value) for key, value in group.options.items()},
        }
        for group in optimizer.groups
    ]


def _state_rows(optimizer: OptimizerContents) -> Iterator[Row]:
    for fqn, state in optimizer.state.items():
        for name, value in state.items():
            key = f"{fqn}.{name}"
            yield (
                _tensor_row(key, value) if is_tensor(value) else {"name": key, "value": describe_value(value)}
            )


def _tensor_row(name: str, source: TensorSource) -> Row:
    return {
        "name": name,
        "dtype": source.dtype.torch_name,
        "shape": list(source.shape),
        "size_bytes": numel(source.shape) * source.dtype.itemsize,
    }


def _raw_row(entry: RawEntry) -> Row:
    return {
        "name": entry.key,
        "dtype": entry.dtype.torch_name,
        "shape": list(entry.shape),
        "size_bytes": numel(entry.shape) * entry.dtype.itemsize,
        "kind": entry.kind,
    }


def _table(write: Write, rows: Sequence[Row]) -> None:
    """Names, types, shapes and sizes in columns."""
    cells = [_cells(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)] if cells else []
    for line in cells:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        write(f"  {text.rstrip()}\n")


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    name = str(row["name"])
    if "value" in row:
        return name, str(row["value"]), "", "", ""
    note = f"tied to {row['tied_to']}" if "tied_to" in row else str(row.get("kind", ""))
    shape, size = row["shape"], row["size_bytes"]
    assert isinstance(shape, list) and isinstance(size, int)
    return name, str(row["dtype"]), _dimensions(shape), human_bytes(size), note


def _dimensions(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"


def _mapping(value: object) -> Mapping[str, object]:
    assert isinstance(value, Mapping)
    return value
