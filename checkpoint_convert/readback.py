"""The check after writing: the output is opened like any checkpoint, and must hold what was sent to it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from checkpoint_convert import digest
from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.items import Items, TensorItem
from checkpoint_convert.model import Contents, TensorSource, Value, numel
from checkpoint_convert.parallel import Workers
from checkpoint_convert.places import stored_keys
from checkpoint_convert.progress import Progress
from checkpoint_convert.transfer import Digests
from checkpoint_convert.values import KeyPath, Leaf, dotted, is_tensor, module_state_key
from checkpoint_convert.write_options import Preset
from checkpoint_convert.writers.safetensors import side_key

ABSENT = object()

NOT_KEPT = object()
"""The form has no place for it, and says the same otherwise: group members by the names of its keys."""


Finder: TypeAlias = Callable[[KeyPath], object]
"""What the output holds at a path; `ABSENT` where nothing, `NOT_KEPT` where nothing is right."""


def check_output(
    find: Finder,
    items: Items,
    digests: Mapping[int, Digests],
    workers: Workers,
    progress: Progress,
    numbers: Sequence[int] | None = None,
    tensor: Callable[[int], object] | None = None,
) -> None:
    """Compare an output with what was written: names, dtypes, shapes, digests, plain values.

    Args:
        find: takes paths below `model` and `optim`, whatever the keys of the output.
        digests: by tensor number.
        numbers: the tensors to read; None means all.
        tensor: finds one by its number; None: `find` does by its path.

    Raises:
        UnreadableError: the first difference.
    """
    canonical = items.canonical
    chosen = range(len(items.tensors)) if numbers is None else numbers
    sizes = array("q", (items.tensors[number].size_bytes for number in chosen))
    progress.phase("checking", sum(sizes))
    for leaf in items.objects:
        _check_value(find(canonical(leaf.path)), leaf)
    by_path = {item.path: item for item in items.tensors} if items.shared else {}
    for shared in items.shared:
        _check_header(find(canonical(shared.path)), by_path[shared.of], dotted(shared.path))

    def work(index: int) -> None:
        number = chosen[index]
        item = items.tensors[number]
        found = find(canonical(item.path)) if tensor is None else tensor(number)
        source = _check_header(found, item, dotted(item.path))
        if not digests[number].written:  # linked: the bytes are the source's own
            progress.advance(item.size_bytes)
            return
        running = digest.new()
        for block in source.blocks(0, numel(source.shape)):
            workers.check()
            running.update(block)
            progress.advance(len(block))
        if running.digest() != digests[number].written:
            raise _damaged(f"{dotted(item.path)}: the bytes on disk are not the bytes that were written")

    workers.run(work, sizes)


def _damaged(text: str) -> UnreadableError:
    return UnreadableError(
        f"the output failed its check after writing: {text}",
        hint="nothing was left behind; this points to a failing disk or file system",
    )


def _check_header(found: object, item: TensorItem, key: str) -> TensorSource:
    if not is_tensor(found):
        raise _damaged(f"{key} is not there")
    if (found.dtype, tuple(found.shape)) != (item.dtype, tuple(item.source.shape)):
        raise _damaged(
            f"{key} is {found.dtype.torch_name} {list(found.shape)}, "
            f"expected {item.dtype.torch_name} {list(item.source.shape)}"
        )
    return found


class FromJson(list[object]):
    """A list read from JSON, which may have been a tuple: JSON has no other."""


def _from_json(value: object) -> object:
    if isinstance(value, dict):
        return {key: _from_json(item) for key, item in value.items()}
    return FromJson(map(_from_json, value)) if isinstance(value, list) else value


def _check_value(found: object, leaf: Leaf) -> None:
    if found is not NOT_KEPT and (found is ABSENT or not _equal(found, leaf.value)):
        raise _damaged(f"{dotted(leaf.path)} is not what was written")


def _equal(found: object, value: Value) -> bool:
    """Equal in value and kind; NaN equals NaN, a tensor equals one of the same bytes."""
    if is_tensor(value):
        return is_tensor(found) and digest.of_tensor(found) == digest.of_tensor(value)
    if isinstance(value, Mapping):
        return (
            isinstance(found, Mapping)
            and list(found) == list(value)
            and all(_equal(found[key], item) for key, item in value.items())
        )
    if isinstance(value, (list, tuple)):
        return (
            isinstance(found, (type(value), FromJson))
            and len(found) == len(value)
            and all(map(_equal, found, value))
        )
    return type(found) is type(value) and repr(found) == repr(value)


def in_contents(written: Contents) -> Finder:
    """Finds things in an output that was opened like any checkpoint."""

    def find(path: KeyPath) -> object:
        if path[0] == "model":
            name = str(path[1])
            if module_state_key(name) in written.extras:
                return _walk(written.extras[module_state_key(name)], path[2:])
            return written.model.get(name) or written.model.get(written.aliases.get(name, ""), ABSENT)
        if path[0] != "optim":
            return _walk(written.extras, path)
        if written.optimizer is None:
            return ABSENT
        if path[1] == "state":
            return _walk(written.optimizer.state, path[2:])
        group = written.optimizer.groups[int(path[2])]
        if path[3] == "params":
            return list(group.params)
        return _walk(group.options, path[3:])

    return find


def in_entries(entries: Mapping[str, object], items: Items, preset: Preset) -> Finder:
    """Finds things in directories whose keys are a preset's own."""
    stored = stored_keys(items, preset)
    names = {items.canonical((key,))[0]: key for key in (items.model_key, items.optim_key)}

    def find(path: KeyPath) -> object:
        keys = stored((names.get(path[0], path[0]), *path[1:]))
        if not keys:
            return NOT_KEPT
        return entries[keys[0]] if all(key in entries for key in keys) else ABSENT

    return find


def beside_safetensors(model: Contents | None, optimizer: Contents | None, groups: object) -> Finder:
    """Finds things in safetensors files: the model's, the optimizer's by their keys, and the groups' JSON."""

    def find(path: KeyPath) -> object:
        if path[0] == "model":
            return ABSENT if model is None else model.model.get(str(path[1]), ABSENT)
        if path == ("optim", "state"):  # that of a stateless optimizer
            return {}
        found = ABSENT if optimizer is None else optimizer.model.get(side_key(path), ABSENT)
        if found is ABSENT and path[1] == "param_groups":
            return _from_json(_walk(groups, (path[2], dotted(path[3:]))))
        return found

    return find


def _walk(found: object, path: KeyPath) -> object:
    for key in path:
        if isinstance(found, Mapping):
            found = found.get(key, ABSENT)
        elif isinstance(found, (list, tuple)) and isinstance(key, int) and key < len(found):
            found = found[key]
        else:
            return ABSENT
    return found
