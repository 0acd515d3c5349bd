"""Objects in the place of state dicts (`torch.save(model)`): only their classes can tell what is in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.model import Opaque
from checkpoint_convert.plain_values import walk
from checkpoint_convert.readers.choices import MODEL_NAMES

_SHOWN = 3
_WITH_STATE = ("torch.optim.", "torch.nn.")


def state_dicts_of(name: str, keys: Sequence[str] = ()) -> str:
    """The hint that says how to save state dicts instead.

    Args:
        name: the file.
        keys: of the objects in it, dotted; none where the file is one object.
    """
    load = f"torch.load({name!r}, weights_only=False)"
    if not keys:
        program = f"torch.save({load}.state_dict(), 'state.pt')"
    else:
        places = ["saved" + "".join(f"[{part!r}]" for part in key.split(".")) for key in keys]
        lines = [f"saved = {load}", *(f"{place} = {place}.state_dict()" for place in places)]
        program = "; ".join([*lines, "torch.save(saved, 'state.pt')"])
    return f"Where its class can be imported, run in Python: {program} and convert state.pt."


def refuse_objects(extras: Mapping[str, object], name: str, *, has_optimizer: bool) -> None:
    """An output without a model is not what was meant where an object stands in its place.

    Args:
        extras: of a file that holds no model.
        has_optimizer: there is an optimizer's state dict.

    Raises:
        UnsupportedError: an object is called as models are, or there is nothing but objects.
    """
    leaves = [(".".join(map(str, path)), leaf) for path, leaf in walk(dict(extras))]
    objects = {key: leaf.class_name for key, leaf in leaves if isinstance(leaf, Opaque)}
    models = [key for key in objects if key.rpartition(".")[2] in MODEL_NAMES]
    states = [key for key, kind in objects.items() if kind.startswith(_WITH_STATE)]
    if not models and (has_optimizer or not objects):
        return
    listed = ", ".join(
        f"{key} is an object of class {objects[key]}"
        for key in list(dict.fromkeys([*models, *objects]))[:_SHOWN]
    )
    keys = list(dict.fromkeys([*models, *states])) or list(objects)[:1]
    alone = " --only optim converts the optimizer alone." if has_optimizer else ""
    raise UnsupportedError(
        f"{name}: no model's state dict in there; {listed}", hint=state_dicts_of(name, keys) + alone
    )
