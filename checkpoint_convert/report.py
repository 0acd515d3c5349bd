"""`conversion.json`: every tensor with its digest, every value, all left out; the same bytes each time.

Written line by line, so that a report of a hundred thousand tensors needs no memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from checkpoint_convert import digest
from checkpoint_convert.places import stored_keys
from checkpoint_convert.values import KeyPath, dotted

if TYPE_CHECKING:
    from checkpoint_convert.convert import Conversion

FORMAT_VERSION = 1


def write_report(write: Callable[[str], object], done: Conversion) -> None:
    """Write the report as JSON text."""
    source = done.source
    at = _places(done)
    head = {
        "version": FORMAT_VERSION,
        "source": {
            "format": source.format.value,
            "world_size": source.world_size,
            "saver_torch": source.saver_torch,
        },
        "written": True,
        "to": done.to.value,
        "layout": done.preset.value,
        "keys": {"model": done.items.model_key, "optim": done.items.optim_key},
        "digest": digest.NAME,
        "verified": done.verified,
        "against": None if done.against is None else {"equal_tensors": done.against},
        "notices": [{"code": notice.code, "text": notice.text} for notice in done.notices],
        "files": [{"name": file.name, "size_bytes": file.size_bytes} for file in done.files],
        "file_digests": {name: found.hex() for name, found in done.file_digests.items()},
        "values": [
            {"key": dotted(leaf.path), **at(leaf.path), "digest": digest.of_value(leaf.value).hex()}
            for leaf in done.items.objects
        ],
        "left_out": [{"key": dotted(item.path), "reason": item.reason} for item in done.items.left_out],
    }
    write(json.dumps(head, indent=1).removesuffix("\n}"))
    write(',\n "tensors": [')
    comma = "\n"
    for row in tensor_rows(done):
        write(f"{comma}  {json.dumps(row)}")
        comma = ",\n"
    write("\n ]\n}\n")


def _places(done: Conversion) -> Callable[[KeyPath], dict[str, list[str]]]:
    """`{"at": [...]}` where a thing does not stand under its key: a loader's own folder, file or keys."""
    stored = stored_keys(done.items, done.preset)

    def at(path: KeyPath) -> dict[str, list[str]]:
        places = stored(path)
        return {} if places == (dotted(path),) else {"at": list(places)}

    return at


def tensor_rows(done: Conversion) -> Iterator[dict[str, object]]:
    """One row per name in the output: key, dtype, shape, digest; what it was before, where that differs."""
    at = _places(done)
    shared: dict[str, list[KeyPath]] = {}
    for alias in done.items.shared:
        shared.setdefault(dotted(alias.of), []).append(alias.path)
    for item, digests in zip(done.items.tensors, done.digests.values(), strict=True):
        key = dotted(item.path)
        row: dict[str, object] = {
            "key": key,
            **at(item.path),
            "dtype": item.dtype.torch_name,
            "shape": list(item.source.shape),
            "digest": digests.written.hex() or None,
        }
        if item.dtype is not item.source.dtype:
            row["source_dtype"] = item.source.dtype.torch_name
            row["source_digest"] = digests.read.hex()
        yield row
        for path in shared.get(key, ()):
            yield {**row, "key": dotted(path), **at(path), "same_as": key}
