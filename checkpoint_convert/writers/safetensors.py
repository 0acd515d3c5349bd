"""Hugging Face safetensors: `model.safetensors`, or numbered files with an index, written header first.

Optimizer state, where there is some, goes into a folder of its own, `optimizer/`, that no loader of models
looks into: `optimizer.safetensors` (keys `state.<fqn>.<name>`) and `param_groups.json`.
Format: https://github.com/huggingface/safetensors#format; names and index as
`transformers.PreTrainedModel.save_pretrained` writes them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.items import Items, TensorItem, dotted
from checkpoint_convert.model import Value, numel
from checkpoint_convert.values import KeyPath
from checkpoint_convert.write_options import SAFETENSORS_FILE_BYTES, WriteOptions
from checkpoint_convert.writers.layout import PlannedFile, Span
from checkpoint_convert.writers.output import Output

INDEX_NAME = "model.safetensors.index.json"
OPTIMIZER_NAME = "optimizer/optimizer.safetensors"
GROUPS_NAME = "optimizer/param_groups.json"

_METADATA = {"format": "pt"}
"""transformers refuses a file without it."""


@dataclass(frozen=True, slots=True)
class _File:
    """A safetensors file: its header and where its data begins."""

    name: str
    header: bytes
    numbers: tuple[int, ...]
    size_bytes: int


class SafetensorsLayout:
    """Where everything of `items` goes in safetensors files; see `Layout`."""

    wants_crc = False

    def __init__(self, items: Items, options: WriteOptions) -> None:
        self._items = items
        self._place: dict[int, tuple[int, int]] = {}
        self._files: list[_File] = []
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
        entries: dict[str, object] = {"__metadata__": _METADATA}
        end = 0
        # Widest elements first, as safetensors itself does, so that every tensor is aligned to its own size.
        order = sorted(numbers, key=lambda number: -self._items.tensors[number].dtype.itemsize)
        starts: dict[int, int] = {}
        for number in order:
            item = self._items.tensors[number]
            starts[number] = end
            entries[side_key(item.path)] = {
                "dtype": item.dtype.safetensors_name,
                "shape": list(item.source.shape),
                "data_offsets": [end, end + item.size_bytes],
            }
            end += item.size_bytes
        text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        header = struct.pack("<Q", len(text)) + text
        for number, start in starts.items():
            self._place[number] = (len(self._files), len(header) + start)
        self._files.append(_File(name, header, tuple(order), len(header) + end))

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
        return 4096 + sum(len(dotted(item.path)) + 60 for item in self._items.tensors)

    def begin(self, out: Output) -> None:
        """Write the headers."""
        for number, file in enumerate(self._files):
            out.write(number, 0, file.header)

    def spans(self, number: int) -> Iterator[Span]:
        """See `Layout`."""
        file, offset = self._place[number]
        item = self._items.tensors[number]
        yield Span(file, offset, 0, numel(item.source.shape))

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
            self._write_json(out, INDEX_NAME, self._index())
        groups = param_groups(self._items)
        if groups:
            self._write_json(out, GROUPS_NAME, groups)

    def _index(self) -> dict[str, object]:
        weights: dict[str, str] = {}
        total = 0
        for file in self._files[: self._model_files]:
            for number in file.numbers:
                item = self._items.tensors[number]
                total += item.size_bytes
                weights[side_key(item.path)] = file.name
        return {"metadata": {"total_size": total}, "weight_map": dict(sorted(weights.items()))}

    @staticmethod
    def _write_json(out: Output, name: str, value: object) -> None:
        with out.stream(name) as sink:
            sink(json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n")


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
