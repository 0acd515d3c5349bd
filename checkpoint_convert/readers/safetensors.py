"""Safetensors files, one or several with an index. Source: the format's description (header, then data)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from checkpoint_convert.errors import IncompleteError, UnreadableError, UnsupportedError
from checkpoint_convert.file_bytes import OpenFiles, read_at
from checkpoint_convert.model import DType, numel
from checkpoint_convert.stored_tensor import Storage, StoredTensor, row_major
from checkpoint_convert.torch_file import file_size

_DTYPES = {dtype.safetensors_name: dtype for dtype in DType if dtype.safetensors_name}
_MAX_HEADER_BYTES = 100_000_000
INDEX = ".safetensors.index.json"


def read_safetensors(files: OpenFiles, paths: Sequence[Path]) -> dict[str, StoredTensor]:
    """All tensors of the files, by name.

    Args:
        paths: files, and index files, whose files are then all read.

    Raises:
        UnreadableError: a header that does not fit its file, or a name twice.
        IncompleteError: an index names a file that is not there, or a tensor its file has not.
    """
    found: dict[str, StoredTensor] = {}
    wanted: dict[str, Path] = {}
    listed: dict[Path, None] = {}
    for path in paths:
        if path.name.endswith(INDEX):
            wanted.update(_index(path))
            listed.update(dict.fromkeys(wanted.values()))
        else:
            listed[path] = None
    for path in listed:
        for name, tensor in _one_file(files, path).items():
            if name in found:
                raise UnreadableError(
                    f"{path}: {name} is also in {found[name].storage.path}",
                    hint="Give the files of one checkpoint only.",
                )
            found[name] = tensor
    missing = next((name for name in wanted if name not in found), None)
    if missing is not None:
        raise IncompleteError(
            f"{wanted[missing]}: has no {missing}, although the index says so",
            hint="Take another copy of it.",
        )
    return found


def _index(path: Path) -> dict[str, Path]:
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        places = {str(file): path.parent / _plain_name(str(file), path) for file in set(files.values())}
        pairs = {str(name): places[str(file)] for name, file in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableError(
            f"{path}: is no safetensors index: {error}", hint="Give the files themselves."
        ) from None
    for file in places.values():
        if not file.is_file():
            raise IncompleteError(
                f"{file}: is missing, although {path.name} lists it", hint="Give all files."
            )
    return pairs


def _plain_name(name: str, path: Path) -> str:
    if Path(name).name != name:
        raise UnreadableError(
            f"{path}: points to {name!r}, outside its directory", hint="The file is forged."
        )
    return name


def _one_file(files: OpenFiles, path: Path) -> dict[str, StoredTensor]:
    size_bytes = file_size(path)
    if size_bytes < 8:
        raise _damaged(path, f"ends at byte {size_bytes}")
    header_bytes = int.from_bytes(read_at(files, path, 0, 8), "little")
    if header_bytes > min(_MAX_HEADER_BYTES, size_bytes - 8):
        raise _damaged(path, f"its header should take {header_bytes} bytes of the file's {size_bytes}")
    try:
        header = json.loads(read_at(files, path, 8, header_bytes), object_hook=_packed)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise _damaged(path, "its header is no table")
    begin = 8 + header_bytes
    storage = Storage(files, path, begin, size_bytes - begin)
    tensors, spans = {}, []
    for name in list(header):
        entry = header.pop(name)
        if name == "__metadata__":
            continue
        tensor, span = _tensor(storage, name, entry, path)
        tensors[name] = tensor
        spans.append(span)
    for (_, end), (start, _) in pairwise(sorted(span for span in spans if span[0] != span[1])):
        if start < end:
            raise _damaged(path, f"two tensors overlap at byte {begin + start}")
    return tensors


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the header says of one tensor, as far as it says it."""

    dtype: object
    sizes: tuple[int, ...] | None
    offsets: tuple[int, ...] | None


def _packed(fields: dict[str, object]) -> object:
    """An entry in less memory than a dictionary takes, of which there may be hundreds of thousands."""
    if not isinstance(fields.get("data_offsets"), list):
        return fields  # the header itself, in which a tensor may be called so
    return _Entry(fields.get("dtype"), _row(fields.get("shape")), _row(fields["data_offsets"]))


def _tensor(storage: Storage, name: str, entry: object, path: Path) -> tuple[StoredTensor, tuple[int, int]]:
    sizes, offsets, kind = (
        (entry.sizes, entry.offsets, entry.dtype) if isinstance(entry, _Entry) else (None, None, None)
    )
    if sizes is None or offsets is None or len(offsets) != 2:
        raise _damaged(path, f"{name} has no shape or no place")
    start, stop = offsets
    dtype = _DTYPES.get(str(kind))
    if dtype is None:
        raise UnsupportedError(
            f"{path}: {name} is of dtype {kind}, which torch FSDP does not train", hint="Cast it."
        )
    if start > stop or stop > storage.size_bytes:
        raise _damaged(path, f"{name} should end at byte {storage.position + stop}")
    if stop - start != numel(sizes) * dtype.itemsize:
        raise _damaged(path, f"{name} of size {sizes} takes {stop - start} bytes")
    # One storage per tensor: names that share bytes are refused above, so none are tied here.
    own = Storage(storage.files, path, storage.position + start, stop - start)
    return StoredTensor(own, dtype, sizes, row_major(sizes)), (start, stop)


def _row(value: object) -> tuple[int, ...] | None:
    if isinstance(value, list) and all(type(item) is int and item >= 0 for item in value):
        return tuple(value)
    return None


def _damaged(path: Path, reason: str) -> UnreadableError:
    return UnreadableError(
        f"{path}: not a whole safetensors file: {reason}", hint="The file is damaged or was cut short."
    )
