"""What goes where: each tensor and value of a source gets one place in the output, or a reason why not.

Pure. Nothing here opens a file, except that the bytes of tied tensors are compared by the caller first
(`unequal_ties`). Key names follow `torch.distributed.checkpoint.state_dict` (`get_model_state_dict`,
`get_optimizer_state_dict`) and `torch.distributed.checkpoint._nested_dict.flatten_state_dict`.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from checkpoint_convert.casting import CASTABLE
from checkpoint_convert.errors import LayoutError, UnsupportedError
from checkpoint_convert.model import Contents, DType, Notice, TensorSource, numel
from checkpoint_convert.optim_items import optimizer_values
from checkpoint_convert.readers.resolve import OPAQUE_EXTRA
from checkpoint_convert.stored_tensor import StoredTensor
from checkpoint_convert.values import KeyPath, Leaf, leaves

CHUNK_BYTES = 32 * 1024 * 1024
"""Largest DCP chunk: a rank reads chunks whole, so small ones save reading and large ones save entries."""

FILE_BYTES = 1024 * 1024 * 1024
"""Where a DCP file ends and the next begins: several files let ranks read in parallel."""

NOT_CARRIED = "CK201"
TIED_DIFFER = "CK202"
DTYPE_KEPT = "CK203"

SAFETENSORS_FILE_BYTES = 5_000_000_000
"""Largest safetensors file, as `transformers.PreTrainedModel.save_pretrained` has it."""


class OutputFormat(enum.Enum):
    """What is written; the value is what `--to` takes."""

    DCP = "dcp"
    SAFETENSORS = "safetensors"
    TORCH = "torch"


class Part(enum.Enum):
    """What `--only` keeps."""

    MODEL = "model"
    OPTIM = "optim"


class TiedPolicy(enum.Enum):
    """What becomes of names that share a tensor."""

    KEEP = "keep"
    """Every name is in the output; the bytes are written once."""
    FIRST = "first"
    """Only the first name of each group."""
    ERROR = "error"
    """Refuse a model with tied names."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How the output should look.

    Attributes:
        dtype: what floating point model tensors become; None keeps them.
        only: which part to write; None writes all.
        shards: target ranks whose rows lie together (DCP); None lays out for any number.
        tied: None means keep, and first for safetensors, whose readers tie by themselves.
        fill_optim_state: give parameters without optimizer state zeros and step 0.
        chunk_bytes, file_bytes: see `CHUNK_BYTES`, `FILE_BYTES`, `SAFETENSORS_FILE_BYTES`.
    """

    to: OutputFormat = OutputFormat.DCP
    dtype: DType | None = None
    only: Part | None = None
    shards: int | None = None
    tied: TiedPolicy | None = None
    fill_optim_state: bool = False
    chunk_bytes: int = CHUNK_BYTES
    file_bytes: int | None = None

    @property
    def tied_policy(self) -> TiedPolicy:
        """The policy in force."""
        if self.tied is not None:
            return self.tied
        return TiedPolicy.FIRST if self.to is OutputFormat.SAFETENSORS else TiedPolicy.KEEP


@dataclass(frozen=True, slots=True)
class TensorItem:
    """A tensor to write.

    Attributes:
        path: its place in the nested output: `("model", fqn)`, `("optim", "state", fqn, "exp_avg")`, ...
        dtype: what is written; `source.dtype` unless a conversion was asked for.
    """

    path: KeyPath
    source: TensorSource
    dtype: DType

    @property
    def size_bytes(self) -> int:
        """Bytes written."""
        return numel(self.source.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class SharedItem:
    """A second name of a tensor that is written once."""

    path: KeyPath
    of: KeyPath


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of the source that the output will not hold, and why."""

    path: KeyPath
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Items:
    """All of a source, each thing once: written, shared with something written, or left out with a reason."""

    tensors: tuple[TensorItem, ...]
    shared: tuple[SharedItem, ...]
    objects: tuple[Leaf, ...]
    left_out: tuple[LeftOut, ...]
    notices: tuple[Notice, ...]

    @property
    def read_bytes(self) -> int:
        """Tensor bytes that will be read."""
        return sum(numel(item.source.shape) * item.source.dtype.itemsize for item in self.tensors)

    @property
    def tensor_bytes(self) -> int:
        """Tensor bytes that will be written, without any framing."""
        return sum(item.size_bytes for item in self.tensors)


class _Draft:
    """Collects items while the plan is made."""

    def __init__(self) -> None:
        self.tensors: list[TensorItem] = []
        self.shared: list[SharedItem] = []
        self.objects: list[Leaf] = []
        self.left_out: list[LeftOut] = []
        self.notices: list[Notice] = []

    def add(self, leaf: Leaf) -> None:
        """Give one thing its place."""
        path, value = leaf.path, leaf.value
        if leaf.refusal:
            self.left_out.append(LeftOut(path, 0, leaf.refusal))
            if isinstance(path[-1], int):  # a list keeps its length, or torch cannot read it
                self.objects.append(Leaf(path, None))
        elif leaf.tensor is not None:
            self.tensors.append(TensorItem(path, leaf.tensor, leaf.tensor.dtype))
        else:
            self.objects.append(Leaf(path, value))

    def finish(self) -> Items:
        """Check that no two things share a place, and freeze."""
        paths = [item.path for item in self.tensors]
        paths += [item.path for item in self.shared]
        paths += [leaf.path for leaf in self.objects]
        twice = [key for key, count in Counter(map(dotted, paths)).items() if count > 1]
        if twice:
            raise LayoutError(
                f"two things of the source would get the same key {twice[0]!r}",
                hint="write one part at a time with --only, or rename the key in the source",
            )
        self.notices.extend(_not_carried(self.left_out))
        return Items(
            tuple(self.tensors),
            tuple(self.shared),
            tuple(self.objects),
            tuple(self.left_out),
            tuple(self.notices),
        )


def _not_carried(left_out: Sequence[LeftOut]) -> Iterator[Notice]:
    """One notice per reason, for all that was not left out on request."""
    names: dict[str, list[str]] = {}
    for item in left_out:
        if not item.reason.startswith("--"):
            names.setdefault(item.reason, []).append(dotted(item.path))
    for reason, keys in names.items():
        yield Notice(NOT_CARRIED, f"not in the output: {', '.join(keys)} ({reason})")


def dotted(path: KeyPath) -> str:
    """A path as the flat key DCP and people use: `model.layers.0.weight`."""
    return ".".join(map(str, path))


def tied_pairs(contents: Contents) -> Iterator[tuple[str, str]]:
    """(name, first name) of tied parameters that the source holds as two tensors: to be compared."""
    for name, first in contents.aliases.items():
        one, other = contents.model.get(name), contents.model.get(first)
        if one is not None and other is not None and not _same_memory(one, other):
            yield name, first


def _same_memory(one: TensorSource, other: TensorSource) -> bool:
    if isinstance(one, StoredTensor) and isinstance(other, StoredTensor):
        views = [(tensor.offset, tensor.dtype, tensor.shape, tensor.stride) for tensor in (one, other)]
        return one.storage is other.storage and views[0] == views[1]
    return one is other


def plan_items(contents: Contents, options: WriteOptions, *, unequal_ties: Collection[str] = ()) -> Items:
    """Give every tensor and value of a source its place in the output.

    Args:
        unequal_ties: names said to be tied whose bytes were found to differ from the first name's.

    Raises:
        UnsupportedError: an option that does not fit the source.
        LayoutError: two things would get the same place.
    """
    draft = _Draft()
    # `_Draft.finish` says itself what is left behind, of whatever class.
    draft.notices.extend(notice for notice in contents.notices if notice.code != OPAQUE_EXTRA)
    _check_parts(contents, options)
    if options.only is not Part.OPTIM:
        _model_items(draft, contents, options, frozenset(unequal_ties))
    else:
        for name, source in contents.model.items():
            draft.left_out.append(LeftOut(("model", name), _size(source), "--only optim"))
    _optimizer_items(draft, contents, options)
    _extra_items(draft, contents, options)
    return draft.finish()


def _check_parts(contents: Contents, options: WriteOptions) -> None:
    if options.only is Part.OPTIM and contents.optimizer is None:
        raise UnsupportedError(
            f"--only optim: the source ({contents.format.value}) holds no optimizer state",
            hint="name the optimizer's file as well, or leave --only out",
        )
    if options.only is Part.MODEL and not contents.model:
        raise UnsupportedError(
            f"--only model: the source ({contents.format.value}) holds no model",
            hint="name the model's file as well, or leave --only out",
        )
    if not contents.model and contents.optimizer is None and not contents.extras:
        raise UnsupportedError("the source holds neither a model nor optimizer state")
    if options.shards is not None and (options.to is not OutputFormat.DCP or options.shards < 1):
        raise UnsupportedError(
            "--shards N lays out a DCP directory for N ranks, N at least 1", hint="leave --shards out"
        )


def _model_items(draft: _Draft, contents: Contents, options: WriteOptions, unequal: frozenset[str]) -> None:
    firsts = _first_names(contents, unequal)
    if options.tied_policy is TiedPolicy.ERROR and (firsts or unequal):
        name = next(iter([*firsts, *sorted(unequal)]))
        raise UnsupportedError(
            f"--tied error: {name} and {firsts.get(name, contents.aliases.get(name))} are tied",
            hint="--tied keep writes both names, --tied first only the first",
        )
    if unequal:
        names = ", ".join(f"{name} and {contents.aliases[name]}" for name in sorted(unequal))
        draft.notices.append(
            Notice(
                TIED_DIFFER,
                f"tied in the model, but of different values in the source: {names}; both written",
            )
        )
    kept: list[str] = []
    # In a safetensors file no two names can share bytes: kept names are written twice.
    twice = options.to is OutputFormat.SAFETENSORS and options.tied_policy is TiedPolicy.KEEP
    for name in [*contents.model, *(name for name in contents.aliases if name not in contents.model)]:
        first = firsts.get(name)
        if first is None or twice:
            source = contents.model[first or name]
            dtype = _model_dtype(source, options.dtype, kept, name)
            draft.tensors.append(TensorItem(("model", name), source, dtype))
        elif options.tied_policy is TiedPolicy.FIRST:
            draft.left_out.append(LeftOut(("model", name), 0, f"--tied first: same tensor as {first}"))
        else:
            draft.shared.append(SharedItem(("model", name), ("model", first)))
    if kept:
        draft.notices.append(
            Notice(DTYPE_KEPT, f"--dtype does not apply to {', '.join(kept)}: kept as in the source")
        )


def _first_names(contents: Contents, unequal: frozenset[str]) -> dict[str, str]:
    """Name -> the name under which its tensor is written, for every name but the first of a tied group."""
    firsts: dict[str, str] = {}
    order = {name: number for number, name in enumerate(contents.model)}
    groups: dict[str, list[str]] = {}
    for name, first in contents.aliases.items():
        if name in unequal or name == first:
            continue
        root = contents.aliases.get(first, first)
        groups.setdefault(root, [root]).append(name)
    for names in groups.values():
        # The name that has bytes of its own and comes first in the model leads.
        present = sorted((name for name in names if name in order), key=lambda name: order[name])
        if not present:
            raise LayoutError(f"tied names {', '.join(names)}: the source holds none of them")
        firsts.update({name: present[0] for name in names if name != present[0]})
    return firsts


def _model_dtype(source: TensorSource, wanted: DType | None, kept: list[str], name: str) -> DType:
    if wanted is None or source.dtype is wanted:
        return source.dtype
    if source.dtype in CASTABLE:
        return wanted
    if "float" in source.dtype.torch_name:
        kept.append(f"{name} ({source.dtype.torch_name})")
    return source.dtype


def _optimizer_items(draft: _Draft, contents: Contents, options: WriteOptions) -> None:
    if contents.optimizer is None:
        return
    values = optimizer_values(contents, fill_missing=options.fill_optim_state)
    if options.only is Part.MODEL:
        for leaf in values.leaves:
            size = 0 if leaf.tensor is None else _size(leaf.tensor)
            draft.left_out.append(LeftOut(leaf.path, size, "--only model"))
        return
    draft.notices.extend(values.notices)
    for leaf in values.leaves:
        draft.add(leaf)


def _extra_items(draft: _Draft, contents: Contents, options: WriteOptions) -> None:
    for key, value in contents.extras.items():
        for leaf in leaves((str(key),), value, keep_integer_keys=options.to is OutputFormat.TORCH):
            size = 0 if leaf.tensor is None else _size(leaf.tensor)
            if options.only is not None:
                draft.left_out.append(LeftOut(leaf.path, size, f"--only {options.only.value}"))
            elif options.to is OutputFormat.SAFETENSORS:
                draft.left_out.append(LeftOut(leaf.path, size, "safetensors holds tensors of a model only"))
            elif leaf.path[0] in ("model", "optim"):
                draft.add(Leaf((f"source_{leaf.path[0]}", *leaf.path[1:]), leaf.value, leaf.refusal))
            else:
                draft.add(leaf)


def _size(source: TensorSource) -> int:
    return numel(source.shape) * source.dtype.itemsize
