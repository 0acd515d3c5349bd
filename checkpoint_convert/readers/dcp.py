"""A torch.distributed.checkpoint directory: `.metadata` read without running it, chunks left in place.

Source: `torch/distributed/checkpoint/metadata.py`, `filesystem.py` (`_StorageInfo`, `.distcp` items are small
torch.save archives), `planner_helpers.py`, `_nested_dict.py` (`planner_data` maps flat keys to paths). The
classes of torch 2.0 to 2.13 differ in module and fields only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from checkpoint_convert.errors import IncompleteError, UnreadableError, UnsupportedError
from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.model import TensorSource
from checkpoint_convert.readers.dcp_chunk import ChunkTensor, Item
from checkpoint_convert.readers.find import METADATA
from checkpoint_convert.readers.sharded import put_together
from checkpoint_convert.symbols import Record
from checkpoint_convert.torch_file import file_size
from checkpoint_convert.torch_item import read_item
from checkpoint_convert.torch_objects import attributes_of, dtype_of, is_torch, numbers
from checkpoint_convert.unpickle import unpickle

_RANK = re.compile(r"^__(\d+)_\d+\.distcp$")
_MAX_METADATA_BYTES = 4 << 30
_MAX_DEPTH = 100
"""Keys on the way to a value; as deep as containers within a file may nest (`plain_values`)."""


@dataclass(frozen=True, slots=True, eq=False)
class DcpDirectory:
    """What a directory holds.

    Attributes:
        values: by flat key: a tensor, or the object that was stored.
        paths: the nested keys each flat key stands for; () for a directory without `planner_data`.
        world_size: ranks that wrote files.
        chunks: of each tensor.
    """

    directory: Path
    values: Mapping[str, object]
    paths: Mapping[str, tuple[object, ...]]
    world_size: int
    chunks: Mapping[str, int]


def read_dcp(files: OpenFiles, directory: Path) -> DcpDirectory:
    """Read a directory, tensors left in place.

    Raises:
        UnreadableError: `.metadata` is damaged or hostile, or a file is cut short.
        IncompleteError: a file or chunk it lists is not there.
    """
    where = str(directory / METADATA)
    metadata = _read_metadata(directory / METADATA)
    try:
        items = dict(_items(directory, metadata.pop("storage_data", None), where))
        entries = metadata.get("state_dict_metadata")
        if not isinstance(entries, dict) or not all(isinstance(key, str) for key in entries):
            raise UnreadableError(f"{where}: lists no tensors", hint="Is it a checkpoint directory?")
        paths = _paths(metadata.get("planner_data"))
        _check_files(items.values())
        values, chunks = {}, {}
        for key, entry in entries.items():
            values[key] = _value(files, key, entry, items, where)
            chunks[key] = len(_list(attributes_of(entry).get("chunks")))
    except (TypeError, ValueError) as error:
        raise UnreadableError(
            f"{where}: an entry is not built as torch builds it: {error}",
            hint="The file is damaged or forged.",
        ) from None
    ranks = [int(match.group(1)) for item in items.values() if (match := _RANK.match(item.path.name))]
    return DcpDirectory(directory, values, paths, max(ranks, default=0) + 1, chunks)


def _read_metadata(path: Path) -> dict[str, object]:
    if file_size(path) > _MAX_METADATA_BYTES:
        raise UnreadableError(
            f"{path}: is larger than any checkpoint's", hint="Is it a checkpoint directory?"
        )
    raw, _ = unpickle(path.read_bytes(), where=str(path))
    if not is_torch(raw, "Metadata") or not isinstance(raw, Record):
        raise UnreadableError(
            f"{path}: is no metadata of torch.distributed.checkpoint", hint="Is it a checkpoint directory?"
        )
    return raw.attributes()


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _paths(planner_data: object) -> dict[str, tuple[object, ...]]:
    if not isinstance(planner_data, dict):
        return {}
    paths: dict[str, tuple[object, ...]] = {}
    for key, path in planner_data.items():
        if isinstance(key, str) and isinstance(path, tuple) and path:
            if len(path) > _MAX_DEPTH or not all(type(part) in (str, int) for part in path):
                raise ValueError(f"the path of {key} is no row of names and positions")
            paths[key] = path
    return paths


Place = tuple[str, tuple[int, ...] | None]


def _items(directory: Path, storage_data: object, where: str) -> Iterator[tuple[Place, Item]]:
    """Chunk offset (None for objects) by key -> where it lies."""
    if not isinstance(storage_data, dict):
        raise UnreadableError(
            f"{where}: does not say where anything lies", hint="Is it a checkpoint directory?"
        )
    files: dict[object, Path] = {}
    for index, info in storage_data.items():
        key, at = attributes_of(index), attributes_of(info)
        if at.get("transform_descriptors"):
            raise UnsupportedError(
                f"{where}: its items are transformed ({at['transform_descriptors']})",
                hint="Load and save the checkpoint again without compression.",
            )
        name, offset = key.get("fqn"), key.get("offset")
        start, size_bytes, path = at.get("offset"), at.get("length"), at.get("relative_path")
        if not isinstance(name, str) or type(start) is not int or type(size_bytes) is not int:
            raise ValueError("a place has no name or no position")
        if start < 0 or size_bytes <= 0:
            raise ValueError(f"{name} lies at byte {start} and takes {size_bytes}")
        if path not in files:
            files[path] = directory / _inside(path, where)
        yield (name, None if offset is None else numbers(offset)), Item(files[path], start, size_bytes)


def _inside(path: object, where: str) -> str:
    """A file's path, if it stays inside the directory."""
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError("a place has no file")
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\\" in path:
        raise UnreadableError(
            f"{where}: points to {path!r}, outside the checkpoint's directory",
            hint="torch never writes this: the file is forged. Do not use it.",
        )
    return path


def _check_files(items: Iterable[Item]) -> None:
    """Every file is there and long enough."""
    ends: dict[Path, int] = {}
    for item in items:
        ends[item.path] = max(ends.get(item.path, 0), item.start + item.size_bytes)
    for path, end in ends.items():
        if not path.is_file():
            raise IncompleteError(
                f"{path}: is missing, although {METADATA} lists it",
                hint="Copy the whole directory, the files of all ranks with it.",
            )
        size_bytes = file_size(path)
        if size_bytes < end:
            raise UnreadableError(
                f"{path}: ends at byte {size_bytes}, where {METADATA} places items up to byte {end}",
                hint="The file was cut short, perhaps while it was written or copied.",
            )


def _value(files: OpenFiles, key: str, entry: object, items: Mapping[Place, Item], where: str) -> object:
    if is_torch(entry, "BytesStorageMetadata"):
        item = items.get((key, None))
        if item is None:
            raise IncompleteError(f"{where}: does not say where {key} lies", hint="Take another copy of it.")
        return read_item(files, item.path, item.start, item.size_bytes)
    if not is_torch(entry, "TensorStorageMetadata"):
        raise ValueError(f"{key} is neither tensor nor object")
    return _tensor(files, key, attributes_of(entry), items, where)


def _tensor(
    files: OpenFiles, key: str, entry: Mapping[str, object], items: Mapping[Place, Item], where: str
) -> TensorSource:
    properties = entry.get("properties")
    state = properties.state if isinstance(properties, Record) else None
    dtype = dtype_of(
        state[0] if isinstance(state, tuple) and state else attributes_of(properties).get("dtype")
    )
    if dtype is None:
        raise UnsupportedError(f"{where}: {key} is of an unknown dtype", hint="Convert it in torch.")
    shape = numbers(entry.get("size"))
    pieces: dict[tuple[int, ...], TensorSource] = {}
    for chunk in _list(entry.get("chunks")):
        offsets, sizes = (numbers(attributes_of(chunk).get(name)) for name in ("offsets", "sizes"))
        if any(size < 0 for size in (*offsets, *sizes)) or offsets in pieces:
            raise ValueError(f"{key} has a chunk of size {sizes} at {offsets}")
        item = items.get((key, offsets))
        if item is None and 0 not in sizes:
            raise IncompleteError(
                f"{where}: does not say where the chunk of {key} at {offsets} lies",
                hint="Take another copy of it.",
            )
        if item is not None and 0 not in sizes:
            pieces[offsets] = ChunkTensor(files, item, dtype, sizes, key)
    return put_together(pieces, dtype, shape, f"{where}: {key}")


def nested(found: DcpDirectory) -> dict[object, object]:
    """The state dict as it was given to `dcp.save`: flat keys unfolded."""
    root: dict[object, object] = {}
    for key, value in found.values.items():
        path = found.paths.get(key, (key,))
        at = root
        for part in path[:-1]:
            step = at.setdefault(part, {})
            if not isinstance(step, dict):
                raise UnreadableError(
                    f"{found.directory / METADATA}: {key} lies inside another value",
                    hint="The file is damaged.",
                )
            at = step
        if path[-1] in at:
            raise UnreadableError(
                f"{found.directory / METADATA}: {key} lies where another value lies already",
                hint="The file is damaged.",
            )
        at[path[-1]] = value
    return {key: _lists(value, key) for key, value in root.items()}


def _lists(value: object, key: object) -> object:
    """Rows that were unfolded into numbered entries, folded again; numbered optimizer state is no row."""
    if not isinstance(value, dict):
        return value
    folded: dict[object, object] = {name: _lists(item, name) for name, item in value.items()}
    if key == "state" and all(isinstance(name, str) and name.isdecimal() for name in folded):
        return {int(str(name)): item for name, item in folded.items()}  # DCP makes text of every key
    if key != "state" and folded and set(folded) == set(range(len(folded))):
        return [folded[number] for number in range(len(folded))]
    return folded
