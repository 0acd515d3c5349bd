"""Which of several models, or optimizers, of one file is meant: by the usual names, or by the user's choice.

What a file holds is known by where it stands in it, `("trainer", "ema", "model")`; a choice (`--from-key`)
names it by its last keys, or a container around it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from checkpoint_convert.errors import AmbiguousFormatError
from checkpoint_convert.readers.options import ReadOptions
from checkpoint_convert.values import dotted

KeyPath: TypeAlias = tuple[object, ...]
"""Where something stands in a file's nested value."""

MODEL_NAMES = (
    "model",
    "state_dict",
    "model_state_dict",
    "model_state",
    "module",
    "app",
    "network",
    "net",
    "weights",
    "_orig_mod",
)
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a file is taken.

    Attributes:
        members: where it stands; several are one model that was saved in parts.
        root: the container of all members: their names begin below it.
        by_key: the choices of the user that led to it.
    """

    members: tuple[KeyPath, ...] = ()
    root: KeyPath = ()
    by_key: frozenset[str] = frozenset()

    @property
    def only(self) -> KeyPath | None:
        """The one place; None where there is none, or several."""
        return self.members[0] if len(self.members) == 1 else None


def choose_model(models: Sequence[KeyPath], path: Path, options: ReadOptions) -> Choice:
    """The model among those a file holds.

    Raises:
        AmbiguousFormatError: several could be meant; the message names them.
    """
    if options.model_key is not None and (options.model_key,) in models:
        return _one((options.model_key,))
    if (chosen := _by_key(models, "model", path, options)) is not None:
        return chosen
    if len(models) <= 1:
        return _one(models[0]) if models else Choice()
    known = _usual(models)
    if len(known) == 1:
        return _one(known[0])
    candidates = known or models
    raise AmbiguousFormatError(
        f"{path}: more than one part could be the model: {_listed(candidates)}{_none_of(options)}",
        hint=f"Choose one by its name, --from-key {dotted(candidates[0])} say.{_together(candidates)}",
    )


def choose_optimizer(optimizers: Sequence[KeyPath], path: Path, options: ReadOptions) -> Choice:
    """The optimizer among those a file holds; several where the user names them, which then are of one model.

    Raises:
        AmbiguousFormatError: several could be meant.
    """
    if (chosen := _by_key(optimizers, "optimizer", path, options)) is not None:
        return chosen
    if len(optimizers) <= 1:
        return _one(optimizers[0]) if optimizers else Choice()
    if not options.use_optimizer:
        return Choice()
    names = [",".join((*options.keys, *map(dotted, some))) for some in (optimizers[:1], optimizers)]
    raise AmbiguousFormatError(
        f"{path}: holds {len(optimizers)} optimizers: {_listed(optimizers)}{_none_of(options)}",
        hint=f"Choose one by its name, --from-key {names[0]} say; all, if they are of one model "
        f"(--from-key {names[1]}); or convert the model alone (--only model).",
    )


def _none_of(options: ReadOptions) -> str:
    """That the user's choice is none of those listed."""
    return f"; --from-key {','.join(options.keys)} names none of them" if options.keys else ""


def _one(at: KeyPath, key: str | None = None) -> Choice:
    return Choice((at,), at, frozenset() if key is None else frozenset({key}))


def _usual(models: Sequence[KeyPath]) -> list[KeyPath]:
    """Those that stand under a name that models usually have: right at the top, else last, else anywhere; but
    not deeper than another, which an average's `model` would be."""
    top: list[KeyPath] = [at for at in models if len(at) == 1 and at[0] in MODEL_NAMES]
    nearest = min(map(len, models), default=0)
    near = [at for at in models if len(at) == nearest]
    return (
        top
        or [at for at in near if at and at[-1] in MODEL_NAMES]
        or [at for at in near if any(part in MODEL_NAMES for part in at)]
    )


def _by_key(places: Sequence[KeyPath], what: str, path: Path, options: ReadOptions) -> Choice | None:
    """What the user chose; None where that is nothing here."""
    found = [choice for key in options.keys for choice in _named(places, key, what)]
    if not found:
        return None
    by_key = frozenset().union(*(one.by_key for one in found))
    if what == "optimizer":
        return Choice(tuple(dict.fromkeys(at for one in found for at in one.members)), (), by_key)
    if len({choice.members for choice in found}) > 1:
        named = ", ".join(" and ".join(map(dotted, choice.members)) for choice in found)
        raise AmbiguousFormatError(
            f"{path}: --from-key {','.join(options.keys)} leaves more than one {what}: {named}",
            hint="Write out the keys before it too, as they are listed here, and name one at a time.",
        )
    return Choice(found[0].members, found[0].root, by_key)


def _named(places: Sequence[KeyPath], key: str, what: str) -> list[Choice]:
    """The places that a key names: by all of their keys, a container's, or the last ones."""
    containers = list(dict.fromkeys(at[:depth] for at in places for depth in range(1, len(at))))
    exact = [at for at in places if dotted(at) == key]
    around = [at for at in containers if dotted(at) == key]
    ends = [at for at in places if dotted(at).endswith(f".{key}")]
    around_ends = [at for at in containers if dotted(at).endswith(f".{key}")]
    for found in (exact, around, ends, around_ends):
        if found:
            return [_below(places, at, key, what) for at in found]
    return []


def _below(places: Sequence[KeyPath], root: KeyPath, key: str, what: str) -> Choice:
    """What stands at a place or below: a model saved in parts is one, but not a model beside its average."""
    members = [at for at in places if at[: len(root)] == root]
    usual = [root + at for at in _usual([at[len(root) :] for at in members])]
    if len(usual) == 1 or len(members) == 1:
        return _one(usual[0] if len(usual) == 1 else members[0], key)
    return Choice(tuple(members), root, frozenset({key}))


def _listed(places: Collection[KeyPath]) -> str:
    names = [dotted(at) or "the file itself" for at in places]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _together(places: Sequence[KeyPath]) -> str:
    """That a container around all of them can be named too."""
    root = places[0][:-1]
    while root and any(at[: len(root)] != root for at in places):
        root = root[:-1]
    return f" If they are parts of one model, --from-key {dotted(root)} takes them together." if root else ""
