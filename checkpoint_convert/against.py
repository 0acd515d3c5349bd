"""`--against`: a conversion is held against a checkpoint that is known to be right, such as a full one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from checkpoint_convert import digest
from checkpoint_convert.errors import LayoutError
from checkpoint_convert.items import Items
from checkpoint_convert.model import Contents, TensorSource, size_bytes
from checkpoint_convert.parallel import Workers
from checkpoint_convert.progress import Progress
from checkpoint_convert.transfer import Digests
from checkpoint_convert.values import KeyPath, dotted, leaves
from checkpoint_convert.write_options import Part

_SHOWN = 5


def check_against(
    reference: Contents,
    items: Items,
    digests: Mapping[int, Digests],
    workers: Workers,
    progress: Progress,
    only: Part | None = None,
) -> int:
    """Compare every tensor that was read with the reference's; the optimizer's where the reference has one.

    Args:
        only: the part that is written; the reference's other part says nothing about it.

    Returns:
        How many tensors were compared and are equal.

    Raises:
        LayoutError: names that only one side has, or tensors that differ.
    """
    expected = _tensors(reference, only)
    numbers = {items.canonical(item.path): number for number, item in enumerate(items.tensors)}
    numbers |= items.sharing()
    kinds = {path[0] for path in expected}
    ours = {path for path in numbers if path[0] in kinds and path[:2] != ("optim", "param_groups")}
    problems = list(_on_one_side(items, ours, expected))
    common = [path for path in expected if path in ours]
    progress.phase("comparing", sum(size_bytes(expected[path]) for path in common))
    differing: list[str] = []

    def work(index: int) -> None:
        path = common[index]
        workers.check()
        source, other = items.tensors[numbers[path]].source, expected[path]
        if (source.dtype, tuple(source.shape)) != (other.dtype, tuple(other.shape)):
            differing.append(f"{dotted(path)} has another dtype or shape")
        elif digest.of_tensor(other) != (digests[numbers[path]].read or digest.of_tensor(source)):
            differing.append(f"{dotted(path)} has other values")
        progress.advance(size_bytes(other))

    workers.run(work, [size_bytes(expected[path]) for path in common])
    problems += sorted(differing)
    if problems:
        more = f", and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise LayoutError(
            f"the source differs from the reference: {'; '.join(problems[:_SHOWN])}{more}",
            hint="nothing was written; are both of the same training step, and is --model the right one?",
        )
    if not common:
        raise LayoutError(
            f"the reference holds nothing to compare{f' with --only {only.value}' if only else ''}",
            hint="nothing was written; name a reference that holds the same part, or leave --against out",
        )
    return len(common)


def _on_one_side(items: Items, ours: Set[KeyPath], expected: Mapping[KeyPath, TensorSource]) -> Iterator[str]:
    """Names that only the source has, or only the reference, without what the output leaves out."""
    left_out = {items.canonical(item.path) for item in items.left_out}
    for path in sorted(ours - expected.keys(), key=dotted):
        yield f"{dotted(path)} is only in the source"
    for path in expected:
        if path not in ours and path not in left_out:
            yield f"{dotted(path)} is only in the reference"


def _tensors(reference: Contents, only: Part | None) -> dict[KeyPath, TensorSource]:
    found: dict[KeyPath, TensorSource] = {}
    if only is not Part.OPTIM:
        found.update(_model_tensors(reference))
    if only is not Part.MODEL and reference.optimizer is not None:
        for fqn, state in reference.optimizer.state.items():
            for name, value in state.items():
                for leaf in leaves(("optim", "state", fqn, name), value):
                    if leaf.tensor is not None:
                        found[leaf.path] = leaf.tensor
    return found


def _model_tensors(reference: Contents) -> dict[KeyPath, TensorSource]:
    found: dict[KeyPath, TensorSource] = {}
    found.update({("model", name): source for name, source in reference.model.items()})
    for name, first in reference.aliases.items():
        if first in reference.model:
            found.setdefault(("model", name), reference.model[first])
    return found
