"""What is around a tensor's bytes in a DCP item (headers, pickle, directory): torch needs it all."""

from __future__ import annotations

from collections.abc import Iterator

from checkpoint_convert.file_bytes import read_at
from checkpoint_convert.model import TensorSource
from checkpoint_convert.readers.dcp_chunk import ChunkTensor
from checkpoint_convert.tensor_sources import BoxTensor, ConcatTensor
from checkpoint_convert.writers.torch_zip import local_crc, tensor_frame

_TENSOR = 2
"""The record of a frame that holds the tensor's bytes."""


def damaged_frame(source: TensorSource) -> str:
    """Where an item is not framed as this tool frames it; empty where all are, and for tensors that are no
    chunks of a DCP directory."""
    for chunk in _chunks(source):
        frame, item = tensor_frame(chunk.dtype, chunk.shape), chunk.item
        head_bytes, tail_bytes = len(frame.head(0)), len(frame.tail(0))
        if item.size_bytes != frame.size_bytes:
            return f"{item.path.name}, item at byte {item.start}"
        head = read_at(chunk.files, item.path, item.start, head_bytes)
        tail = read_at(chunk.files, item.path, item.start + item.size_bytes - tail_bytes, tail_bytes)
        crc = local_crc(head[frame.records[_TENSOR].header_offset :])
        if (head, tail) != (frame.head(crc), frame.tail(crc)):
            return f"{item.path.name}, item at byte {item.start}"
    return ""


def _chunks(source: TensorSource) -> Iterator[ChunkTensor]:
    if isinstance(source, ChunkTensor):
        yield source
    elif isinstance(source, ConcatTensor):
        for part in source.parts:
            yield from _chunks(part)
    elif isinstance(source, BoxTensor):
        for box in source.boxes:
            yield from _chunks(box.piece)
