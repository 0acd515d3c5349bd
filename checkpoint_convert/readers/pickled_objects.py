"""Objects in the place of state dicts (`torch.save(model)`): only their classes can tell what is in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.model import Opaque
from checkpoint_convert.plain_values import walk
from checkpoint_convert.readers.choices import MODEL_NAMES, KeyPath
from checkpoint_convert.values import dotted

_SHOWN = 3
_WITH_STATE = ("torch.optim.", "torch.nn.")


def state_dicts_of(name: str, keys: Sequence[KeyPath] = ()) -> str:
    """The hint that says how to save state dicts instead.

    Args:
        name: the file.
        keys: of the objects in it; none where the file is one object.
    """
    load = f"torch.load({name!r}, weights_only=False)"
    below = ["".join(f"[{part!r}]" for part in key) for key in keys]
    if not keys or any(isinstance(part, int) for key in keys for part in key):  # in lists no model is sought
        program = f"torch.save({load}{next(iter(below), '')}.state_dict(), 'state.pt')"
    else:
        places = [f"saved{at}" for at in below]
        lines = [f"saved = {load}", *(f"{place} = {place}.state_dict()" for place in places)]
        program = "; ".join([*lines, "torch.save(saved, 'state.pt')"])
    return f"Where its class can be imported, run in Python: {program} and convert state.pt."


def _place(name: str) -> KeyPath:
    """Where an extra of that name stands: keys of containers that were opened are joined by dots."""
    return tuple(int(part) if part.isdecimal() else part for part in name.split("."))


def refuse_objects(extras: Mapping[str, object], name: str, *, has_optimizer: bool) -> None:
    """An output without a model is not what was meant where an object stands in its place.

    Args:
        extras: of a file that holds no model.
        has_optimizer: there is an optimizer's state dict.

    Raises:
        UnsupportedError: an object is called as models are, or there is nothing but objects.
    """
    leaves = [leaf for name, value in extras.items() for leaf in walk(value, _place(name))]
    objects = {path: leaf for path, leaf in leaves if isinstance(leaf, Opaque)}
    models = [path for path, leaf in objects.items() if path[-1] in MODEL_NAMES and leaf.is_module]
    states = [path for path, leaf in objects.items() if leaf.class_name.startswith(_WITH_STATE)]
    if not models and (has_optimizer or not objects):
        return
    listed = ", ".join(
        f"{dotted(key)} is an object of class {objects[key].class_name}"
        for key in list(dict.fromkeys([*models, *objects]))[:_SHOWN]
    )
    keys = list(dict.fromkeys([*models, *states])) or list(objects)[:1]
    alone = " --only optim converts the optimizer alone." if has_optimizer else ""
    raise UnsupportedError(
        f"{name}: no model's state dict in there; {listed}", hint=state_dicts_of(name, keys) + alone
    )
