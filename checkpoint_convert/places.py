"""Where a loader looks for things: the keys of each preset's DCP directories, and the folders they are in.

Source: torchtitan `components/checkpointer` (the model's entries stand at the top, the optimizer's are
flattened as `StateDictOptions(flatten_optimizer_state_dict=True)` does); accelerate `utils/fsdp_utils.py`;
lightning `fabric/strategies/model_parallel.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from checkpoint_convert.items import Items
from checkpoint_convert.values import KeyPath, dotted
from checkpoint_convert.write_options import Preset

MODEL_FOLDER = "pytorch_model_fsdp_0"
OPTIM_FOLDER = "optimizer_0"
"""accelerate's directories of the first model and the first optimizer."""

META_NAME = "meta.pt"
"""lightning's file for all that is neither model nor optimizer; it makes the directory a checkpoint."""

Places: TypeAlias = Callable[[KeyPath], tuple[KeyPath, ...]]
"""The keys in a DCP directory under which something of that path stands; none where it is not kept."""


def as_they_are(path: KeyPath) -> tuple[KeyPath, ...]:
    """Under its path."""
    return (path,)


def torchtitan_places(items: Items) -> Places:
    """The model's names at the top, the optimizer's with the name of the parameter in place of a number."""
    root = items.optim_key
    groups = {
        leaf.path[2]: leaf.value
        for leaf in items.objects
        if leaf.path[1:2] == ("param_groups",) and leaf.path[0] == root and leaf.path[3:] == ("params",)
    }

    def places(path: KeyPath) -> tuple[KeyPath, ...]:
        if path[0] == items.model_key:
            return (path[1:],)
        if path[:2] == (root, "state"):
            return ((root, dotted(path[1:])),) if path[2:] else ()
        if path[:2] == (root, "param_groups"):
            names = groups.get(path[2])
            # `param_names` repeats all names; under each of them it would be as long as their number squared.
            if path[3] in ("params", "param_names") or not isinstance(names, list):
                return ()
            return tuple((root, f"param_groups.{name}.{dotted(path[3:])}") for name in names)
        return (path,)

    return places


def stored_keys(items: Items, preset: Preset) -> Callable[[KeyPath], tuple[str, ...]]:
    """Where a thing of an output stands: folder or file and a slash, then its key; none where nowhere."""
    flattened = torchtitan_places(items) if preset is Preset.TORCHTITAN else as_they_are

    def keys(path: KeyPath) -> tuple[str, ...]:
        if preset is Preset.ACCELERATE:
            return (f"{MODEL_FOLDER if path[0] == items.model_key else OPTIM_FOLDER}/{dotted(path)}",)
        if preset is Preset.LIGHTNING and path[0] not in (items.model_key, items.optim_key):
            return (f"{META_NAME}/{dotted(path)}",)
        return tuple(map(dotted, flattened(path)))

    return keys
