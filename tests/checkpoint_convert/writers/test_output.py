"""Output files get their room before their bytes; where none can be had, nothing is written."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint_convert import file_bytes
from checkpoint_convert.items import Items, TensorItem
from checkpoint_convert.model import DType
from checkpoint_convert.optim_items import Zeros
from checkpoint_convert.write_options import FILE_BYTES, LEAST_FILE_BYTES, WriteOptions
from checkpoint_convert.writers import kernel_calls
from checkpoint_convert.writers.dcp import DcpLayout
from checkpoint_convert.writers.output import Output

LARGE = kernel_calls.WORTH_RESERVING_BYTES


def refusing(number: int) -> Callable[..., object]:
    """A C library whose calls all fail."""

    def call(*_: object) -> int:
        ctypes.set_errno(number)
        return -1

    return lambda name, arguments: call


def can_reserve(folder: Path) -> bool:
    """Whether the file system can, asked by the system's own command."""
    command = shutil.which("fallocate")
    asked = [command, "--length", str(LARGE), str(folder / "asked")] if command else []
    return bool(asked) and subprocess.run(asked, capture_output=True, check=False).returncode == 0


def test_a_finished_file_is_given_no_room_again(tmp_path: Path) -> None:
    """What was sent to a store by a lost run stands here as a file without bytes."""
    with (tmp_path / "sent").open("wb") as stand_in:
        stand_in.truncate(LARGE)
    out = Output(tmp_path, ["sent"], durable=False, anew=False, sizes=[LARGE])
    try:
        out.write(0, 0, b"x")
        assert (tmp_path / "sent").stat().st_blocks * 512 < LARGE
    finally:
        out.abandon()


def test_a_large_file_has_its_size_and_room_at_once(tmp_path: Path) -> None:
    out = Output(tmp_path, ["large", "small", "unknown"], durable=False, sizes=[LARGE, LARGE - 1])
    try:
        for file in range(3):
            out.write(file, 10, b"x")
        assert [(tmp_path / name).stat().st_size for name in ("small", "unknown")] == [11, 11]
        large = (tmp_path / "large").stat()
        if can_reserve(tmp_path):
            assert large.st_size == LARGE and large.st_blocks * 512 >= LARGE
        else:
            assert large.st_size == 11
        out.close(0, LARGE)
        out.settle()
        assert (tmp_path / "large").read_bytes() == bytes(10) + b"x" + bytes(LARGE - 11)
    finally:
        out.abandon()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(kernel_calls, "_call", refusing(number))
    out = Output(tmp_path, ["large"], durable=False, sizes=[LARGE])
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        out.write(0, 0, b"x")
    assert caught.value.errno == number
    out.abandon()


def test_a_file_system_that_cannot_reserve_is_written_to_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_calls, "_call", refusing(errno.EOPNOTSUPP))
    out = Output(tmp_path, ["large"], durable=False, sizes=[LARGE])
    out.write(0, 0, b"x")
    assert (tmp_path / "large").read_bytes() == b"x"
    out.abandon()


@pytest.mark.parametrize(
    ("count", "files"),
    [(1, 1), (2, 1), (3, 2), (16, 8), (256, 8), (300, 10)],  # of 32 MiB each
)
def test_even_a_small_checkpoint_has_a_file_for_each_thread(count: int, files: int) -> None:
    tensor = Zeros(DType.FLOAT32, (8, 1024, 1024))
    items = Items(
        tuple(TensorItem(("model", str(number)), tensor, tensor.dtype) for number in range(count)),
        (),
        (),
        (),
        (),
    )
    layout = DcpLayout(items, WriteOptions())
    assert len(layout.files) == files
    sizes = [file.size_bytes for file in layout.files[:-1]]
    assert all(LEAST_FILE_BYTES <= size < FILE_BYTES + 2 * (32 << 20) for size in sizes)


def test_memory_that_was_read_into_is_not_shared_with_a_forked_process() -> None:
    block = file_bytes._take_block(file_bytes.BLOCK_BYTES)
    block[:2] = b"ab"
    child = os.fork()
    if not child:
        block[:2] = b"xy"
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert bytes(block[:2]) == b"ab"
