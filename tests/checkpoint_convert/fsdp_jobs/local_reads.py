"""An FSDP2 job on a mesh that loads directories and writes down, per rank, the bytes it read of each file.

Arguments: output directory, then per directory `<replicate>x<shard>=<directory>`.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.checkpoint_convert.fsdp_jobs.loaders import plain
from tests.checkpoint_convert.fsdp_jobs.model import Block, build

READ: Counter[str] = Counter()


class Counted:
    """A stream that counts what is read from it."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._stream = stream
        self._name = name

    def read(self, *size: int) -> bytes:
        data = self._stream.read(*size)
        READ[self._name] += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        count: int = self._stream.readinto(buffer)  # type: ignore[attr-defined]
        READ[self._name] += count
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def count_reads() -> None:
    """Wrap what torch's reader opens."""
    original = FileSystem.create_stream

    @contextmanager
    def create_stream(self: FileSystem, path: Any, mode: str) -> Iterator[Any]:
        with original(self, path, mode) as stream:
            yield Counted(stream, Path(path).name)

    FileSystem.create_stream = create_stream  # type: ignore[method-assign]


def main(out: Path, jobs: list[str]) -> None:
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo")
    count_reads()
    for job in jobs:
        shape, _, directory = job.partition("=")
        replicate, shard = map(int, shape.split("x"))
        mesh = init_device_mesh("cpu", (replicate, shard), mesh_dim_names=("replicate", "shard"))
        model = build()
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=5.0)
        READ.clear()
        plain(model, optimizer, Path(directory))
        report = {"shard": mesh.get_local_rank("shard"), "read": dict(READ)}
        (out / f"{shape}_{dist.get_rank()}.json").write_text(json.dumps(report))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads abort the interpreter now and then at exit


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
