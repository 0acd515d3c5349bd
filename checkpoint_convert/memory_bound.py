"""`--max-memory`: the memory that a planned conversion takes, and with how many threads it keeps a bound.

What grows is known before the first byte is read: a few hundred bytes of names and places per chunk, and per
thread a block, or the whole of one tensor whose elements lie in another order than they are written in.
"""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.file_bytes import FETCH_BYTES, FETCHERS
from checkpoint_convert.items import TensorItem
from checkpoint_convert.model import BLOCK_BYTES, TensorSource, numel, size_bytes
from checkpoint_convert.stored_tensor import StoredTensor, extent
from checkpoint_convert.tensor_sources import BoxTensor, ConcatTensor, SliceTensor, StridedTensor
from checkpoint_convert.values import dotted

_BLOCKS = 4
"""Blocks a thread holds at a time: read, converted, written, and what the allocator keeps."""

_CHECK_BYTES = 2048
"""Per chunk while an output is read back: its `.metadata` as it is parsed. Measured on 200,000 tensors."""

SEND_BYTES = 8 << 20
"""What is sent to a store at a time where memory is bounded; its client holds up to four of them."""

_SLACK_BYTES = 16 << 20
"""Modules that are imported on the way, stacks of threads, buffers of files."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def parse_size(text: str) -> int:
    """Bytes of a size such as `800MiB`, `2G` or `1500000000`.

    Raises:
        UnsupportedError: it is no size.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", text.strip().lower())
    if found is None or not float(found.group(1)):
        raise UnsupportedError(f"{text!r} is no size", hint="write it as 800MiB, 2G or 1500000000")
    return int(float(found.group(1)) * _UNITS[found.group(2) or ""])


def held_bytes(source: TensorSource) -> int:
    """Bytes a tensor keeps in memory while it is read, beside the block; 0 for one in row-major order."""
    if isinstance(source, StoredTensor):
        return 0 if source.contiguous else 2 * extent(source.shape, source.stride) * source.dtype.itemsize
    if isinstance(source, StridedTensor):
        return 2 * size_bytes(source) + held_bytes(source.memory)
    if isinstance(source, SliceTensor):
        return held_bytes(source.whole)
    if isinstance(source, ConcatTensor):
        return max(map(held_bytes, source.parts), default=0)
    if isinstance(source, BoxTensor):
        return max((held_bytes(box.piece) for box in source.boxes), default=0)
    return 0


def needed_bytes(
    tensors: Sequence[TensorItem], chunks: int, jobs: int, *, verify: bool, sends: bool = False
) -> int:
    """Peak memory of the process with so many threads, the plan being made already."""
    held = sorted((held_bytes(item.source) for item in tensors), reverse=True)[:jobs]
    largest = max((numel(item.source.shape) * item.dtype.itemsize for item in tensors), default=0)
    blocks = jobs * _BLOCKS * min(BLOCK_BYTES, largest)
    if FETCHERS or sends:
        blocks += jobs * 2 * FETCH_BYTES
    if sends:
        blocks += 4 * SEND_BYTES
    return resident_bytes() + _SLACK_BYTES + sum(held) + blocks + (chunks * _CHECK_BYTES if verify else 0)


def jobs_within(
    bound: int,
    tensors: Sequence[TensorItem],
    chunks: int,
    jobs: int,
    *,
    verify: bool,
    sends: bool = False,
) -> int:
    """As many of `jobs` threads as stay below a bound.

    Args:
        sends: files are sent on to a store while others are written.

    Raises:
        UnsupportedError: not even one does; says what is needed.
    """
    for fewer in range(jobs, 0, -1):
        if needed_bytes(tensors, chunks, fewer, verify=verify, sends=sends) <= bound:
            return fewer
    needed = needed_bytes(tensors, chunks, 1, verify=verify, sends=sends)
    largest = max(tensors, key=lambda item: held_bytes(item.source), default=None)
    why = ""
    if largest is not None and held_bytes(largest.source):
        name, held = dotted(largest.path), held_bytes(largest.source)
        why = f"; {name} is stored in another order and takes {held:,} bytes of it"
    raise UnsupportedError(
        f"--max-memory: this conversion takes about {needed:,} bytes, {bound:,} are allowed{why}",
        hint=f"allow {-(-needed // 2**20)}MiB"
        + (", or leave the read-back out (--no-verify)" if verify and chunks else ""),
    )


def resident_bytes() -> int:
    """Memory that this process holds now; elsewhere than on Linux the most it has held so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
