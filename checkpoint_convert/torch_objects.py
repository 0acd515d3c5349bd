"""What torch's pickles mean: from recorded calls to tensors on disk, sharded tensors and plain containers.

The names are those of every release from 1.12 on; where a class moved between modules only its last name
counts. Source: `torch/_utils.py` (`_rebuild_*`), `torch/_tensor.py`
(`_rebuild_from_type_v2`), `torch/distributed/_shard/sharded_tensor/api.py`,
`torch/distributed/tensor/_api.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.model import BY_TORCH_NAME, DType
from checkpoint_convert.stored_tensor import Storage, StoredTensor, check_view
from checkpoint_convert.symbols import Record, Symbol

_BY_STORAGE = {dtype.storage_class: dtype for dtype in DType if dtype.storage_class}
_TENSOR_CALLS = frozenset({"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"})
_PARAMETER_CALLS = frozenset({"_rebuild_parameter", "_rebuild_parameter_with_state"})


@dataclass(frozen=True, slots=True, eq=False)
class TypedStorage:
    """A storage as a persistent id names it.

    Attributes:
        dtype: of its elements; None for an untyped one, whose tensors say their dtype themselves.
    """

    storage: Storage
    dtype: DType | None


@dataclass(frozen=True, slots=True)
class ShardBox:
    """Where a shard lies in the whole tensor, and the rank that held it (None: not said)."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    rank: int | None


@dataclass(frozen=True, slots=True, eq=False)
class ShardedTensorOnRank:
    """A `ShardedTensor` as one rank saved it.

    Attributes:
        shape, dtype: of the whole tensor.
        boxes: every shard of every rank.
        local: this rank's shards.
        rank, world_size: in the group it was sharded over; None where the file does not say.
        global_rank: among all ranks of the job; differs from `rank` under hybrid sharding.
    """

    shape: tuple[int, ...]
    dtype: DType
    boxes: tuple[ShardBox, ...]
    local: tuple[tuple[ShardBox, StoredTensor], ...]
    rank: int | None
    world_size: int | None
    global_rank: int | None


@dataclass(frozen=True, slots=True, eq=False)
class DTensorOnRank:
    """A `DTensor` as one rank saved it.

    Attributes:
        shape: of the whole tensor.
        placements: per mesh dimension: `Shard(0)` is 0, `Replicate()` is None; others by class name.
        mesh_shape: sizes of the mesh; () where the release did not write them.
        coordinate: this rank's place in the mesh; None where the release did not write it.
    """

    shape: tuple[int, ...]
    local: StoredTensor
    placements: tuple[int | str | None, ...]
    mesh_shape: tuple[int, ...]
    coordinate: tuple[int, ...] | None

    @property
    def dtype(self) -> DType:
        """Of the whole tensor as of its shard."""
        return self.local.dtype


def dtype_of(value: object) -> DType | None:
    """The dtype a symbol such as `torch.float32` names."""
    if isinstance(value, Symbol) and value.module == "torch":
        return BY_TORCH_NAME.get(value.name)
    return None


def storage_dtype(value: object) -> DType | None:
    """The element type of a storage class such as `torch.FloatStorage`; None for an untyped one."""
    return _BY_STORAGE.get(value.name) if isinstance(value, Symbol) else None


def numbers(value: object) -> tuple[int, ...]:
    """A `torch.Size`, tuple or list of integers, as a tuple; raises TypeError for anything else."""
    if isinstance(value, Record) and value.class_name == "torch.Size" and value.args:
        value = value.args[0]
    if not isinstance(value, list | tuple) or not all(type(item) is int for item in value):
        raise TypeError("a size is not a row of integers")
    return tuple(value)


def is_torch(value: object, name: str) -> bool:
    """Whether a record is a call of torch's `name`, in whichever module it stood then."""
    if not isinstance(value, Record) or not isinstance(value.target, Symbol):
        return False
    return value.target.name == name and value.target.module.split(".")[0] == "torch"


def tensor_from(record: Record, where: str) -> StoredTensor | None:
    """The tensor a record rebuilds; None if it rebuilds something else.

    Raises:
        UnreadableError: the tensor does not lie inside its storage.
    """
    target = record.target
    if not isinstance(target, Symbol) or target.module.split(".")[0] != "torch":
        return None
    if target.name in _PARAMETER_CALLS and record.args and isinstance(record.args[0], Record):
        return tensor_from(record.args[0], where)
    if target.name == "_rebuild_from_type_v2" and len(record.args) == 4:
        inner = Record(record.args[0], _as_tuple(record.args[2]))
        return tensor_from(inner, where)
    if target.name not in _TENSOR_CALLS or len(record.args) < 4:
        return None
    return _strided_tensor(record, where)


def _strided_tensor(record: Record, where: str) -> StoredTensor | None:
    storage, offset, shape, stride, *rest = record.args
    if not isinstance(storage, TypedStorage) or type(offset) is not int:
        return None
    dtype = dtype_of(rest[2]) if record.class_name.endswith("_v3") and len(rest) > 2 else storage.dtype
    metadata = rest[3] if record.class_name.endswith("_v3") and len(rest) > 3 else None
    if record.class_name.endswith("_v2") and len(rest) > 2:
        metadata = rest[2]
    if dtype is None or (isinstance(metadata, dict) and (metadata.get("conj") or metadata.get("neg"))):
        # A dtype this tool does not know, or a lazily conjugated view: not readable as it lies.
        return None
    tensor = StoredTensor(storage.storage, dtype, numbers(shape), numbers(stride), offset)
    check_view(tensor, where)
    return tensor


def sharded_tensor_from(record: Record, where: str) -> ShardedTensorOnRank | None:
    """The `ShardedTensor` a record rebuilds; None if it rebuilds something else."""
    if not _is_wrapper(record, "ShardedTensor"):
        return None
    state = record.args[3]
    if not isinstance(state, tuple) or len(state) < 3:
        raise UnreadableError(
            f"{where}: a ShardedTensor without its state", hint="The file is damaged or forged."
        )
    shards, metadata, group = state[0], attributes_of(state[1]), attributes_of(state[2])
    local = []
    for shard in shards if isinstance(shards, list) else []:
        attributes = attributes_of(shard)
        tensor = attributes.get("tensor")
        stored = tensor_from(tensor, where) if isinstance(tensor, Record) else None
        if stored is not None:
            local.append((_box(attributes.get("metadata")), stored))
    boxes = metadata.get("shards_metadata")
    shape = numbers(metadata.get("size"))
    dtype = dtype_of(_as_tuple(record.args[2])[1])
    if dtype is None:
        return None
    return ShardedTensorOnRank(
        shape,
        dtype,
        tuple(_box(box) for box in (boxes if isinstance(boxes, list) else [])),
        tuple(local),
        _int_or_none(group.get("local_rank")),
        _int_or_none(group.get("local_world_size")),
        _int_or_none(group.get("global_rank")),
    )


def dtensor_from(record: Record, where: str) -> DTensorOnRank | None:
    """The `DTensor` a record rebuilds; None if it rebuilds something else."""
    if not _is_wrapper(record, "DTensor"):
        return None
    attributes = _attributes_of_state(record.args[3])
    spec, local = attributes_of(attributes.get("_spec")), attributes.get("_local_tensor")
    tensor = tensor_from(local, where) if isinstance(local, Record) else None
    if tensor is None:
        return None
    mesh = attributes_of(spec.get("mesh"))
    coordinate = mesh.get("_coordinate_on_dim")
    return DTensorOnRank(
        numbers(_as_tuple(record.args[2])[2]),
        tensor,
        tuple(_placement(item) for item in _as_tuple(spec.get("placements"))),
        _mesh_shape(mesh, where),
        numbers(coordinate) if isinstance(coordinate, tuple | list) else None,
    )


def _is_wrapper(record: Record, class_name: str) -> bool:
    if not is_torch(record, "_rebuild_from_type_v2") or len(record.args) != 4:
        return False
    kind = record.args[1]
    return isinstance(kind, Symbol) and kind.name == class_name and kind.module.startswith("torch.")


def _mesh_shape(mesh: dict[str, object], where: str) -> tuple[int, ...]:
    ranks = mesh.get("mesh")
    if isinstance(ranks, Record):  # up to about 2.8: the tensor of ranks itself
        stored = tensor_from(ranks, where)
        return stored.shape if stored is not None else ()
    layout = attributes_of(mesh.get("_layout"))
    axes = layout.get("axes")
    if isinstance(axes, tuple):  # 2.13: one small layout per dimension, () for size 1
        return tuple(_product(attributes_of(axis).get("shape")) for axis in axes)
    shape = layout.get("shape")
    return tuple(_product(size) for size in shape) if isinstance(shape, tuple) else ()


def _product(value: object) -> int:
    if type(value) is int:
        return value
    result = 1
    for item in value if isinstance(value, tuple | list) else ():
        result *= _product(item)
    return result


def _placement(value: object) -> int | str | None:
    if is_torch(value, "Replicate"):
        return None
    if is_torch(value, "Shard") and isinstance(value, Record):
        dim = value.attributes().get("dim", value.args[0] if value.args else None)
        return dim if type(dim) is int else "Shard"
    return value.class_name if isinstance(value, Record) else type(value).__name__


def _box(value: object) -> ShardBox:
    attributes = attributes_of(value)
    placement = attributes_of(attributes.get("placement"))
    return ShardBox(
        numbers(attributes.get("shard_offsets")),
        numbers(attributes.get("shard_sizes")),
        _int_or_none(placement.get("_rank")),
    )


def attributes_of(value: object) -> dict[str, object]:
    """The attributes of a record; none of anything else."""
    return value.attributes() if isinstance(value, Record) else {}


def _attributes_of_state(state: object) -> dict[str, object]:
    holder = Record(None, ())
    holder.build(state)
    return holder.attributes()


def _as_tuple(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()


def _int_or_none(value: object) -> int | None:
    return value if type(value) is int else None
