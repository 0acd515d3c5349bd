"""The words of the converter: what a reader finds, and what a writer is given.

Nothing here needs torch: a tensor is a dtype, a shape and a way to read its bytes. The dtype names are
torch's own (`torch.serialization`, `torch.storage._dtype_to_storage_type_map`).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

BLOCK_BYTES = 512 * 1024
"""Size of the blocks in which tensor bytes travel: they stay in the processor's cache (measured fastest)."""


class DType(enum.Enum):
    """Element types: torch's name, bytes per element, torch's storage class, the safetensors name."""

    FLOAT64 = ("float64", 8, "DoubleStorage", "F64")
    FLOAT32 = ("float32", 4, "FloatStorage", "F32")
    FLOAT16 = ("float16", 2, "HalfStorage", "F16")
    BFLOAT16 = ("bfloat16", 2, "BFloat16Storage", "BF16")
    FLOAT8_E4M3FN = ("float8_e4m3fn", 1, "", "F8_E4M3")
    FLOAT8_E5M2 = ("float8_e5m2", 1, "", "F8_E5M2")
    FLOAT8_E4M3FNUZ = ("float8_e4m3fnuz", 1, "", "F8_E4M3FNUZ")
    FLOAT8_E5M2FNUZ = ("float8_e5m2fnuz", 1, "", "F8_E5M2FNUZ")
    FLOAT8_E8M0FNU = ("float8_e8m0fnu", 1, "", "F8_E8M0")
    INT64 = ("int64", 8, "LongStorage", "I64")
    INT32 = ("int32", 4, "IntStorage", "I32")
    INT16 = ("int16", 2, "ShortStorage", "I16")
    INT8 = ("int8", 1, "CharStorage", "I8")
    UINT8 = ("uint8", 1, "ByteStorage", "U8")
    UINT64 = ("uint64", 8, "", "U64")
    UINT32 = ("uint32", 4, "", "U32")
    UINT16 = ("uint16", 2, "", "U16")
    BOOL = ("bool", 1, "BoolStorage", "BOOL")
    COMPLEX32 = ("complex32", 4, "", "")
    COMPLEX64 = ("complex64", 8, "ComplexFloatStorage", "C64")
    COMPLEX128 = ("complex128", 16, "ComplexDoubleStorage", "")

    def __init__(self, torch_name: str, itemsize: int, storage_class: str, safetensors_name: str) -> None:
        self.torch_name = torch_name
        self.itemsize = itemsize
        self.storage_class = storage_class
        self.safetensors_name = safetensors_name


BY_TORCH_NAME = {dtype.torch_name: dtype for dtype in DType}


class TensorSource(Protocol):
    """A tensor that stays where it is until its bytes are asked for."""

    @property
    def dtype(self) -> DType: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        """The bytes of elements `start` to `stop`, counted in row-major (C contiguous) order.

        Several threads may read different tensors of one source at a time.

        Args:
            start, stop: element numbers, 0 <= start <= stop <= numel.

        Yields:
            Little-endian bytes of whole elements in order, at most `BLOCK_BYTES` at a time; a block is
            valid until the next one is asked for.

        Raises:
            UnreadableError: the bytes cannot be read, or are not what the file's header promised.
        """
        ...


def numel(shape: Sequence[int]) -> int:
    """Elements of a tensor of that shape; 1 for a 0-dim one."""
    return math.prod(shape)


def size_bytes(source: TensorSource) -> int:
    """Bytes of a tensor's elements."""
    return numel(source.shape) * source.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Opaque:
    """An object of a class the converter does not know. It was not built, only noted.

    Attributes:
        class_name: module and name, such as `argparse.Namespace`.
        rank: its attribute of that name, if it is a number: what a job's arguments say.
        is_module: it has what every `nn.Module` has.
    """

    class_name: str
    rank: int | None = field(default=None, compare=False)
    is_module: bool = field(default=False, compare=False)


Value: TypeAlias = (
    "bool | int | float | complex | str | bytes | TensorSource | Opaque "
    "| Sequence[Value] | Mapping[object, Value] | None"
)
"""Anything else a checkpoint holds: hyper-parameters, scheduler state, epoch, RNG state."""


class SourceFormat(enum.Enum):
    """What a source was found to be; the value is what `--from` takes."""

    FULL = "full"
    """One torch.save file of full tensors: model, optimizer, both, nested as their writer liked."""
    LOCAL = "local"
    """Per-rank LOCAL_STATE_DICT files: flat parameters."""
    SHARDED = "sharded"
    """Per-rank SHARDED_STATE_DICT files: ShardedTensor or DTensor."""
    RAW_OPTIM = "raw-optim"
    """Per-rank `optimizer.state_dict()` over flat parameters."""
    DCP = "dcp"
    """A torch.distributed.checkpoint directory."""
    SAFETENSORS = "safetensors"
    """Safetensors files, Hugging Face index or not."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know and need not act on, unless `--strict`."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class ParamGroup:
    """One group of an optimizer: which parameters (by FQN), with which hyper-parameters."""

    params: tuple[str, ...]
    options: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class OptimizerContents:
    """An optimizer's state by FQN and state name (`exp_avg`, `step`, ...), and its groups.

    A state value is a tensor of the parameter's shape, a 0-dim tensor, or a plain number.
    """

    state: Mapping[str, Mapping[str, Value]]
    groups: Sequence[ParamGroup]


@dataclass(frozen=True, slots=True)
class Contents:
    """All that a source holds, per parameter, in full shapes and by clean FQNs.

    Attributes:
        format: what the source was found to be.
        model: parameters and buffers by FQN, wrapper prefixes removed, in the source's order.
        optimizer: None where the source holds none.
        extras: everything else, by the source's own keys.
        aliases: FQN -> the FQN whose tensor it shares, for tied parameters.
        world_size: ranks that wrote it; None where that cannot be told.
        saver_torch: version of torch that wrote it; None where that cannot be told.
        loadable_as_is: an FSDP2 job can load the source directly; nothing needs converting.
    """

    format: SourceFormat
    model: Mapping[str, TensorSource]
    optimizer: OptimizerContents | None = None
    extras: Mapping[str, Value] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    world_size: int | None = None
    saver_torch: str | None = None
    loadable_as_is: bool = False
    finish: Callable[[], None] = lambda: None
    """To be called after the last byte was read, before the output gets its name: verifies the checksums
    of records that tensors cover only in part; raises UnreadableError."""
