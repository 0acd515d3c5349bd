"""The items of an output: each thing of a source once, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from checkpoint_convert.model import DType, Notice, TensorSource, numel, size_bytes
from checkpoint_convert.values import KeyPath, Leaf
from checkpoint_convert.write_options import MODEL_KEY, OPTIM_KEY


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
    reason: str


@dataclass(frozen=True, slots=True)
class Items:
    """All of a source, each thing once: written, shared with something written, or left out with a reason."""

    tensors: tuple[TensorItem, ...]
    shared: tuple[SharedItem, ...]
    objects: tuple[Leaf, ...]
    left_out: tuple[LeftOut, ...]
    notices: tuple[Notice, ...]
    model_key: str = MODEL_KEY
    optim_key: str = OPTIM_KEY

    def under_keys(self, model_key: str, optim_key: str) -> Items:
        """The same with other top-level keys for model and optimizer."""
        if (model_key, optim_key) == (self.model_key, self.optim_key):
            return self
        keys = {self.model_key: model_key, self.optim_key: optim_key}

        def moved(path: KeyPath) -> KeyPath:
            return (keys.get(str(path[0]), path[0]), *path[1:])

        return Items(
            tuple(replace(item, path=moved(item.path)) for item in self.tensors),
            tuple(SharedItem(moved(item.path), moved(item.of)) for item in self.shared),
            tuple(replace(leaf, path=moved(leaf.path)) for leaf in self.objects),
            tuple(replace(item, path=moved(item.path)) for item in self.left_out),
            self.notices,
            model_key,
            optim_key,
        )

    def canonical(self, path: KeyPath) -> KeyPath:
        """A path of the output as the source's contents are spoken of: below `model` or `optim`."""
        kinds: dict[object, str] = {self.model_key: MODEL_KEY, self.optim_key: OPTIM_KEY}
        return (kinds.get(path[0], path[0]), *path[1:])

    def sharing(self) -> dict[KeyPath, int]:
        """Canonical paths of second names, and the number of the tensor that each shares."""
        firsts = {item.of for item in self.shared}
        numbers = {item.path: number for number, item in enumerate(self.tensors) if item.path in firsts}
        return {self.canonical(item.path): numbers[item.of] for item in self.shared}

    @property
    def read_bytes(self) -> int:
        """Tensor bytes that will be read."""
        return sum(size_bytes(item.source) for item in self.tensors)
