"""From the parts found to one `Contents`: which part is the model, which the optimizer, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from checkpoint_convert.errors import AmbiguousFormatError, UnreadableError
from checkpoint_convert.model import Contents, SourceFormat, TensorSource
from checkpoint_convert.readers.ddp_prefix import without_ddp_prefix
from checkpoint_convert.readers.names import flat_prefix
from checkpoint_convert.readers.optimizers import Known, read_optimizer
from checkpoint_convert.readers.options import ReadOptions
from checkpoint_convert.readers.parts import Part
from checkpoint_convert.readers.pickled_objects import refuse_objects
from checkpoint_convert.readers.resolve import plain_extras
from checkpoint_convert.readers.tying import tied, with_ties

if TYPE_CHECKING:
    from checkpoint_convert.layout import ModelLayout
    from checkpoint_convert.readers.local import LocalModel


_LISTED = 12


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """The parts a conversion is made of."""

    model: Part | None
    optimizer: Part | None


def assemble(parts: Sequence[Part], options: ReadOptions) -> Contents:
    """Put parts together.

    Raises:
        AmbiguousFormatError: several parts could be the model, or the optimizer.
        UnreadableError: there is neither.
    """
    _check_keys(parts, options)
    chosen = choose(parts, options)
    layout = _given_layout(options)
    part = chosen.model and without_ddp_prefix(chosen.model, chosen.optimizer, layout, options)
    notices = [notice for one in parts for notice in (part if part and one is chosen.model else one).notices]
    model: dict[str, TensorSource] = {}
    aliases: dict[str, str] = {}
    local = None
    if part is not None and part.model is not None and _is_flat(part):
        layout, local = _read_flat(part, layout, options)
        model, aliases = dict(local.tensors), dict(local.aliases)
        notices += local.notices
    elif part is not None and part.model is not None:
        if part.refusal is not None:
            from checkpoint_convert.readers.slices import joined_slices

            model, said = joined_slices(part, layout, part.refusal)
            notices += said
        model, aliases = with_ties(model or dict(part.model), tied(part), layout)
    optimizer = None
    if chosen.optimizer is not None:
        found = Known(model, aliases, layout, local, part)
        optimizer, more = read_optimizer(chosen.optimizer, found, options)
        notices += more
    leader = part or chosen.optimizer
    assert leader is not None
    plain, lost = plain_extras(_extras(parts), leader.name)
    return Contents(
        format=leader.model_format or leader.optimizer_format or SourceFormat.FULL,
        model=model,
        optimizer=optimizer,
        extras=plain,
        aliases=aliases,
        notices=(*notices, *lost),
        world_size=leader.world_size,
        saver_torch=leader.saver_torch,
        loadable_as_is=all(one.loadable_as_is for one in (leader, chosen.optimizer) if one is not None),
    )


def _check_keys(parts: Sequence[Part], options: ReadOptions) -> None:
    """Every name of `--from-key` is that of something.

    Raises:
        UnreadableError: one is not.
    """
    for key in options.keys:
        if not options.keys_may_miss and not any(key in part.by_key for part in parts):
            named = list(dict.fromkeys(name for part in parts for name in part.candidates))
            raise UnreadableError(
                f"{', '.join(part.name for part in parts)}: no model or optimizer called {key} in there",
                hint=f"--from-key takes one of {', '.join(named[:_LISTED])}."
                if named
                else "What there is has no names; leave --from-key out.",
            )


# What only flat checkpoints need is imported for them alone: a start is a large part of a small conversion.


def _given_layout(options: ReadOptions) -> ModelLayout | None:
    if options.layout_from is None and options.model is None:
        return None
    from checkpoint_convert.readers.layouts import given_layout

    return given_layout(options)


def _read_flat(
    part: Part, layout: ModelLayout | None, options: ReadOptions
) -> tuple[ModelLayout, LocalModel]:
    from checkpoint_convert.readers.ignored import ignored_of
    from checkpoint_convert.readers.layouts import memory_order, needed
    from checkpoint_convert.readers.local import read_local
    from checkpoint_convert.readers.rank_order import model_order

    layout = needed(layout, part.name, "these are flat parameters")
    order = memory_order(options, layout, part.saver_torch)
    local = read_local(part, layout, order, ignored_of(layout, options))
    return layout, replace(local, notices=(*local.notices, *model_order(part, layout, local)))


def _extras(parts: Sequence[Part]) -> dict[str, object]:
    """The extras of all parts; a key that means two things is told apart by the part's name."""
    extras: dict[str, object] = {}
    for part in parts:
        for key, value in part.extras.items():
            if key not in extras or extras[key] != value:
                extras[key if key not in extras else f"{part.name}:{key}"] = value
    return extras


def _is_flat(part: Part) -> bool:
    return part.pieced or any(flat_prefix(name) is not None for name in part.model or ())


def choose(parts: Sequence[Part], options: ReadOptions) -> Chosen:
    """The one model and the one optimizer among the parts."""
    models = [part for part in parts if part.model is not None] if options.use_model else []
    optimizers = (
        [part for part in parts if part.optimizer_format is not None] if options.use_optimizer else []
    )
    wanted = options.format
    if wanted is SourceFormat.RAW_OPTIM:
        optimizers = [part for part in optimizers if part.optimizer_format is wanted] or [
            part for part in optimizers if part.optimizer is not None and part.optimizer.by_number
        ]  # of one rank it is a whole one
    elif wanted is not None:
        models = [part for part in models if part.model_format is wanted] or (
            [] if any(part.optimizer_format is wanted for part in optimizers) else models
        )
    model = _only(models, "model", wanted)
    if model is None and options.use_model and wanted is not SourceFormat.RAW_OPTIM:
        for part in parts:
            refuse_objects(part.extras, part.name, has_optimizer=bool(optimizers))
    optimizer = _only(_closest(optimizers, model, wanted), "optimizer", wanted)
    if model is None and optimizer is None:
        asked = f" of format {wanted.value}" if wanted is not None else ""
        found = ", ".join(part.name for part in parts)
        raise UnreadableError(
            f"{found}: neither a model nor an optimizer{asked} in there",
            hint="Give the files that hold the state dicts.",
        )
    return Chosen(model, optimizer)


def _closest(optimizers: Sequence[Part], model: Part | None, wanted: SourceFormat | None) -> Sequence[Part]:
    """Of several optimizers, those that were saved the way the chosen model was."""
    if model is None or len(optimizers) < 2 or wanted is None:
        same = [part for part in optimizers if part is model]
        return same or optimizers
    partner = {SourceFormat.LOCAL: SourceFormat.RAW_OPTIM}.get(wanted, wanted)
    for rule in (
        lambda part: part is model,
        lambda part: part.optimizer_format is partner,
        lambda part: part.world_size == model.world_size,
    ):
        kept = [part for part in optimizers if rule(part)]
        if kept:
            return kept
    return optimizers


def _only(parts: Sequence[Part], what: str, wanted: SourceFormat | None) -> Part | None:
    if len(parts) <= 1:
        return parts[0] if parts else None
    one, two = parts[0], parts[1]
    formats = [(part.model_format if what == "model" else part.optimizer_format) for part in (one, two)]
    named = [fmt.value if fmt is not None else "unknown" for fmt in formats]
    if named[0] != named[1]:
        hint = f"Say which with --from {named[0]} or --from {named[1]}, or give one of them only."
    else:
        hint = "Give one of them only, and the files that belong to it; a quoted glob names ranks' files."
    raise AmbiguousFormatError(
        f"two candidates for the {what}: {one.name} ({named[0]}) and {two.name} ({named[1]})", hint=hint
    )
