"""One torch.save file of very many tensors, read back at the places it was laid out with.

Its pickle and its directory are compared with those that were written, byte for byte; every tensor is read
behind the header that says its size and CRC-32.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from checkpoint_convert.checksum import Checksum
from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.file_bytes import OpenFiles, read_at, read_blocks
from checkpoint_convert.items import Items
from checkpoint_convert.laid_out_safetensors import check_bytes
from checkpoint_convert.model import TensorSource
from checkpoint_convert.readback import ABSENT, Finder
from checkpoint_convert.stored_tensor import Storage, StoredTensor, row_major
from checkpoint_convert.values import KeyPath
from checkpoint_convert.writers.torch_file import TorchFileLayout
from checkpoint_convert.writers.torch_zip import local_crc, local_header


def find_in_torch_file(
    files: OpenFiles, path: Path, layout: TorchFileLayout, items: Items
) -> tuple[Finder, Callable[[int], object]]:
    """What finds values and second names by path, and tensors by number.

    Raises:
        UnreadableError: the pickle, the directory or a small tensor inside a tuple is not what was written.
    """
    if layout.head_digest is not None:  # else another rank wrote it, and looks at it
        check_bytes(path, layout.head_digest, layout.head_bytes)
    if layout.directory_digest is not None:
        check_bytes(path, layout.directory_digest, start=layout.directory_at)
        for number in range(len(items.tensors), layout.chunk_count):
            storage = _storage(files, path, layout, number)
            for _ in read_blocks(files, path, storage.position, storage.size_bytes, storage.checksum):
                pass
    shared = items.sharing()
    values = {items.canonical(leaf.path): leaf.value for leaf in items.objects}  # bytes of the pickle

    def tensor(number: int) -> TensorSource:
        item = items.tensors[number]
        storage = _storage(files, path, layout, number)
        return StoredTensor(storage, item.dtype, item.source.shape, row_major(item.source.shape))

    def find(path: KeyPath) -> object:
        return tensor(shared[path]) if path in shared else values.get(path, ABSENT)

    return find, tensor


def _storage(files: OpenFiles, path: Path, layout: TorchFileLayout, number: int) -> Storage:
    """A storage behind the header that was written, whose bytes must have the CRC-32 it says."""
    record = layout.storage(number)
    size = record.data_offset - record.header_offset
    header = read_at(files, path, record.header_offset, size)
    crc = local_crc(header)
    if header != local_header(record, crc):
        raise UnreadableError(
            f"the output failed its check after writing: {path.name} is not what was written",
            hint="nothing was left behind; this points to a failing disk or file system",
        )
    check = Checksum(path, record.name, record.data_offset, record.size_bytes, crc)
    return Storage(files, path, record.data_offset, record.size_bytes, check)
