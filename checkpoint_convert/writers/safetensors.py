"""Hugging Face safetensors: `model.safetensors`, or numbered files with an index, written header first.

Optimizer state, where there is some, goes into a folder of its own, `optimizer/`, that no loader of models
looks into: `optimizer.safetensors` (keys `state.<fqn>.<name>`) and `param_groups.json`.
Format: https://github.com/huggingface/safetensors#format; names and index as
`transformers.PreTrainedModel.save_pretrained` writes them.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from checkpoint_convert import digest
from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.items import Items, TensorItem
from checkpoint_convert.model import Value, numel
from checkpoint_convert.values import KeyPath, dotted
from checkpoint_convert.write_options import SAFETENSORS_FILE_BYTES, WriteOptions
from checkpoint_convert.writers.layout import PlannedFile, Span
from checkpoint_convert.writers.output import Output

INDEX_NAME = "model.safetensors.index.json"
OPTIMIZER_NAME = "optimizer/optimizer.safetensors"
GROUPS_NAME = "optimizer/param_groups.json"

_METADATA = {"format": "pt"}
"""transformers refuses a file without it."""


_PIECE_BYTES = 64 << 10
"""Of a header, written at a time: all of it may be tens of megabytes."""


@dataclass(frozen=True, slots=True)
class _File:
    """A safetensors file: the tensors in it, in the order of their bytes, and the header before them."""

    name: str
    numbers: Sequence[int]
    header_bytes: int
    size_bytes: int


class SafetensorsLayout:
    """Where everything of `items` goes in safetensors files; see `Layout`."""

    wants_crc = False

    def __init__(self, items: Items, options: WriteOptions) -> None:
        self._items = items
        self._file_of = array("q", bytes(8 * len(items.tensors)))
        self._offset = array("q", bytes(8 * len(items.tensors)))
        self._files: list[_File] = []
        self.digests: dict[str, bytes] = {}
        """Of the headers and of the JSON files by name, once they are written."""
        _check_types(items)
        model = [number for number, item in enumerate(items.tensors) if item.path[0] == "model"]
        shards = self._pack(model, options.file_bytes or SAFETENSORS_FILE_BYTES)
        for number, shard in enumerate(shards, 1):
            name = (
                "model.safetensors"
                if len(shards) == 1
                else f"model-{number:05}-of-{len(shards):05}.safetensors"
            )
            self._add_file(name, shard)
        self._model_files = len(self._files)
        rest = [number for number, item in enumerate(items.tensors) if item.path[0] != "model"]
        if rest:
            self._add_file(OPTIMIZER_NAME, rest)

    def _pack(self, numbers: Sequence[int], limit: int) -> list[list[int]]:
        """Fill files in order, each up to `limit` bytes; a larger tensor has a file of its own."""
        shards: list[list[int]] = []
        room = 0
        for number in numbers:
            size = self._items.tensors[number].size_bytes
            if not shards or size > room:
                shards.append([])
                room = limit
            shards[-1].append(number)
            room -= size
        return shards

    def _add_file(self, name: str, numbers: Sequence[int]) -> None:
        # Widest elements first, as safetensors itself does, so that every tensor is aligned to its own size.
        order = array("q", sorted(numbers, key=lambda number: -self._items.tensors[number].dtype.itemsize))
        header_bytes = sum(map(len, self._header(order)))
        end = header_bytes
        for number in order:
            self._file_of[number], self._offset[number] = len(self._files), end
            end += self._items.tensors[number].size_bytes
        self._files.append(_File(name, order, header_bytes, end))

    def _header(self, numbers: Sequence[int]) -> Iterator[bytes]:
        """What stands before a file's tensors; in pieces, the first being its length."""
        text_bytes = sum(map(len, self._entries(numbers)))
        padding = -text_bytes % 8
        yield struct.pack("<Q", text_bytes + padding)
        yield from self._entries(numbers)
        yield b" " * padding

    def _entries(self, numbers: Sequence[int]) -> Iterator[bytes]:
        yield _json({"__metadata__": _METADATA})[:-1]
        end = 0
        for number in numbers:
            item = self._items.tensors[number]
            entry = {
                "dtype": item.dtype.safetensors_name,
                "shape": list(item.source.shape),
                "data_offsets": [end, end + item.size_bytes],
            }
            yield b"," + _json({side_key(item.path): entry})[1:-1]
            end += item.size_bytes
        yield b"}"

    @property
    def files(self) -> Sequence[PlannedFile]:
        """The safetensors files."""
        return [PlannedFile(file.name, file.size_bytes) for file in self._files]

    @property
    def tensors(self) -> Sequence[TensorItem]:
        """The tensors to write."""
        return self._items.tensors

    @property
    def chunk_count(self) -> int:
        """Tensors, each in one piece."""
        return len(self._items.tensors)

    @property
    def closing_bytes(self) -> int:
        """About the size of the index and of the parameter groups."""
        index = self._items.tensors if self._model_files > 1 else ()
        return 4096 + sum(len(dotted(item.path)) + 60 for item in index)

    @property
    def header_sizes(self) -> Iterator[tuple[str, int]]:
        """Names of the files, and the bytes before their tensors."""
        return ((file.name, file.header_bytes) for file in self._files)

    def begin(self, out: Output) -> None:
        """Write the headers."""
        for number, file in enumerate(self._files):
            running, at, waiting = digest.new(), 0, bytearray()
            for piece in self._header(file.numbers):
                running.update(piece)
                waiting += piece
                if len(waiting) >= _PIECE_BYTES:
                    out.write(number, at, bytes(waiting))
                    at, waiting = at + len(waiting), bytearray()
            out.write(number, at, bytes(waiting))
            self.digests[file.name] = running.digest()

    def place(self, number: int) -> tuple[str, int]:
        """The file that a tensor is in, and the byte at which it begins."""
        return self._files[self._file_of[number]].name, self._offset[number]

    def spans(self, number: int) -> Iterator[Span]:
        """See `Layout`."""
        item = self._items.tensors[number]
        yield Span(self._file_of[number], self._offset[number], 0, numel(item.source.shape))

    def is_linked(self, number: int) -> bool:
        """Never."""
        return False

    def close_span(self, out: Output, number: int, span: Span, crc: int) -> None:
        """Nothing frames a tensor."""

    def note_done(self, out: Output, number: int, crcs: Sequence[int]) -> None:
        """Nothing depends on it."""

    def finish(self, out: Output) -> None:
        """Write the index, and the optimizer's groups."""
        for number, file in enumerate(self._files):
            out.close(number, file.size_bytes)
        if self._model_files > 1:
            self._write(out, INDEX_NAME, self._index())
        groups = param_groups(self._items)
        if groups:
            self._write(out, GROUPS_NAME, [json.dumps(groups, indent=2, ensure_ascii=False) + "\n"])

    def _index(self) -> Iterator[str]:
        """As `json.dumps(..., indent=2)` has it, line by line."""
        names = {
            side_key(self._items.tensors[number].path): file.name
            for file in self._files[: self._model_files]
            for number in file.numbers
        }
        total = sum(file.size_bytes - file.header_bytes for file in self._files[: self._model_files])
        yield f'{{\n  "metadata": {{\n    "total_size": {total}\n  }},\n  "weight_map": {{'
        for count, name in enumerate(sorted(names)):
            pair = json.dumps({name: names[name]}, ensure_ascii=False)[1:-1]
            yield f"{',' if count else ''}\n    {pair}"
        yield "\n  }\n}\n"

    def _write(self, out: Output, name: str, texts: Iterable[str]) -> None:
        running = digest.new()
        with out.stream(name) as sink:
            for text in texts:
                data = text.encode()
                running.update(data)
                sink(data)
        self.digests[name] = running.digest()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def side_key(path: KeyPath) -> str:
    """A tensor's name in its file: the FQN in a model's, `state.<fqn>.<name>` in the optimizer's."""
    return dotted(path[1:])


def param_groups(items: Items) -> list[dict[str, Value]]:
    """The optimizer's groups as JSON has them (tuples become lists).

    Raises:
        UnsupportedError: a hyper-parameter that JSON cannot hold.
    """
    groups: dict[int, dict[str, Value]] = {}
    for leaf in items.objects:
        if leaf.path[:2] != ("optim", "param_groups"):
            continue
        try:
            plain = json.loads(json.dumps(leaf.value))
        except TypeError as error:
            raise UnsupportedError(
                f"{dotted(leaf.path)} cannot be written beside safetensors: {error}",
                hint="--only model, or --to dcp",
            ) from error
        groups.setdefault(int(leaf.path[2]), {})[dotted(leaf.path[3:])] = plain
    return [groups[number] for number in sorted(groups)]


def _check_types(items: Items) -> None:
    for item in items.tensors:
        if not item.dtype.safetensors_name:
            raise UnsupportedError(
                f"{dotted(item.path)} is {item.dtype.torch_name}, which safetensors does not have",
                hint="--to dcp",
            )
