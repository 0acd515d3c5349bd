"""The optimizer of a source by FQN, whichever of the forms it was saved in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from checkpoint_convert.errors import IncompleteError, LayoutError
from checkpoint_convert.model import Notice, OptimizerContents, SourceFormat, TensorSource
from checkpoint_convert.optim_state import (
    SavedOptimizer,
    group_keys,
    has_shape,
    listed_keys,
    refuse_joint_state,
)
from checkpoint_convert.readers.full import named_optimizer, numbered_optimizer
from checkpoint_convert.readers.options import ReadOptions
from checkpoint_convert.readers.parts import Part
from checkpoint_convert.readers.rank_sets import last_number
from checkpoint_convert.readers.tying import equal_matrices
from checkpoint_convert.torch_objects import DTensorOnRank, ShardedTensorOnRank

if TYPE_CHECKING:
    from checkpoint_convert.layout import ModelLayout
    from checkpoint_convert.readers.local import LocalModel


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of the model when the optimizer is read.

    Attributes:
        part: the part the model came from.
    """

    model: Mapping[str, TensorSource]
    aliases: Mapping[str, str]
    layout: ModelLayout | None
    local: LocalModel | None
    part: Part | None


def read_optimizer(
    part: Part, known: Known, options: ReadOptions
) -> tuple[OptimizerContents, tuple[Notice, ...]]:
    """An optimizer by FQN.

    Raises:
        LayoutError: its numbers cannot be told from sizes and names at hand; the message says what to give.
        UnsupportedError: its state is not about single parameters.
    """
    shapes = {name: source.shape for name, source in known.model.items()}
    saved = part.optimizer
    ranks = part.raw or ((saved,) if saved is not None else ())
    for one in ranks:
        refuse_joint_state(one, part.name)
    if saved is not None and not saved.by_number:
        return named_optimizer(saved, shapes, part.name), ()
    parameters: dict[str, tuple[int, ...]] = {}
    if len(ranks) == 1 and known.local is None:
        parameters = _parameters(known, len(listed_keys(ranks[0])))
        if parameters and _sizes_fit(ranks[0], parameters) and _numbers_are_the_models(ranks[0], options):
            _check_names(parameters, known, part.name)
            return numbered_optimizer(ranks[0], parameters, part.name), ()
    from checkpoint_convert.readers.layouts import memory_order, needed
    from checkpoint_convert.readers.raw_optim import read_raw

    layout = known.layout or _layout_beside(known, parameters)
    layout = needed(layout, part.name, "this optimizer state is kept by parameter numbers")
    order = memory_order(options, layout, part.saver_torch)
    try:
        unnamed = () if _names_are_ranks(known.part) else part.unnamed
        found = read_raw(ranks, layout, known.local, options, order, part.name, unnamed)
        _check_names(found[0].state, known, part.name)
        return found
    except LayoutError as error:
        _check_ranks(part, known.part, len(ranks))
        if known.layout is None:
            error.hint += " The model itself, --model pkg.module:factory, tells more than the one beside."
        raise


def _check_names(names: Collection[str], known: Known, where: str) -> None:
    """The given model calls its parameters as the checkpoint's model does; some may not have been saved.

    Raises:
        LayoutError: it calls none so.
    """
    if not known.model or not names or any(name in known.model or name in known.aliases for name in names):
        return
    name = next(iter(names))
    longer = next((other for other in known.model if other.endswith(f".{name}")), None)
    if longer is None:
        hint = "Give the --model that the checkpoint is of."
    else:
        nested = "".join(f"torch.nn.ModuleDict({{{part!r}: " for part in longer[: -len(name) - 1].split("."))
        hint = (
            "Let the factory return what the job saved, whose names they are (a LightningModule, say), or "
            f"{nested}model{'})' * nested.count('{')}."
        )
    raise LayoutError(
        f"{where}: none of the names of the given model, such as {name}, is in the checkpoint, which has "
        f"{longer or next(iter(known.model))}",
        hint=hint,
    )


def _names_are_ranks(model: Part | None) -> bool:
    """Whether the model's files beside the optimizer's say their ranks, and are named by them."""
    if model is None or not model.told or len(model.files) < 2:
        return False
    return all(rank == last_number(Path(name)) for name, rank in model.files)


def _check_ranks(part: Part, model: Part | None, count: int) -> None:
    """An optimizer that fits nothing may only lack ranks that the model beside it has.

    Raises:
        IncompleteError: names the files found and the ranks missing.
    """
    if model is None or model.model_format not in (SourceFormat.LOCAL, SourceFormat.SHARDED):
        return
    world = model.world_size or 1
    if count % world == 0:
        return
    numbers = [rank for _, rank in part.files]
    missing = sorted(set(range(world)) - {rank for rank in numbers if rank is not None})
    names = ", ".join(name for name, _ in part.files) or part.name
    if None not in numbers and len(missing) == world - count:
        plural = len(missing) > 1
        listed = ", ".join(map(str, missing))
        lacking = f"the file{'s' * plural} of rank {listed} {'are' if plural else 'is'} missing"
    else:
        lacking = f"the files of {world - count % world} ranks are missing"
    raise IncompleteError(
        f"{part.name}: {lacking} of the optimizer; found {names}; the model beside it is of {world} ranks",
        hint="Give the optimizer's files of all ranks: the directory, or a quoted glob. "
        "--only model converts the model without it.",
    )


def _parameters(known: Known, count: int) -> dict[str, tuple[int, ...]]:
    """Shapes of `named_parameters()` in order; {} where buffers cannot be told from parameters.

    Only a state dict has the model's order: safetensors files sort names, so that h.10 is before h.2, and DCP
    has them as ranks wrote them.
    """
    if known.layout is not None:
        specs = known.layout.unique_parameters()
        for chosen in (specs, [spec for spec in specs if spec.requires_grad]):
            if len(chosen) == count:
                return {spec.fqn: spec.shape for spec in chosen}
        return {}
    if known.part is None or known.part.model_format is not SourceFormat.FULL:
        return {}
    found = {name: source.shape for name, source in known.model.items() if name not in known.aliases}
    return found if len(found) == count else {}


def _sizes_fit(saved: SavedOptimizer, parameters: Mapping[str, tuple[int, ...]]) -> bool:
    shapes = list(parameters.values())
    for number, entry in saved.state.items():
        if not isinstance(number, int) or number >= len(shapes):
            return False
        if not has_shape(entry, shapes[number]):
            return False
    return True


def _numbers_are_the_models(saved: SavedOptimizer, options: ReadOptions) -> bool:
    """Whether an optimizer's numbers count the model's parameters.

    torch counts through the groups, one after another. Only for a single group is that the model's order, and
    where numbers do not follow each other somebody else has counted (`rekey_optim_state_dict`).
    """
    groups = [group for group in saved.groups if group_keys(group)]
    if len(groups) < 2 or all("param_names" in group for group in groups):
        return True
    numbers = listed_keys(saved)
    return options.param_groups is None and numbers != list(range(len(numbers)))


def _layout_beside(known: Known, parameters: Collection[str]) -> ModelLayout | None:
    """The layout that a model beside the optimizer tells.

    Args:
        parameters: names of a whole model's; of a sharded one, its sharded tensors are the parameters.
    """
    if parameters:
        from checkpoint_convert.readers.layouts import layout_from_names

        whole = {name: known.model[name] for name in parameters}
        return layout_from_names(whole, {}, known.part.name if known.part is not None else "")
    part = known.part
    if part is None or part.model_format is not SourceFormat.SHARDED or not part.local:
        return None
    sharded = {
        name: known.model[name]
        for name, value in part.local[0].items()
        if isinstance(value, ShardedTensorOnRank | DTensorOnRank)
    }
    if not sharded:
        raise LayoutError(
            f"{part.name}: has no sharded parameters to number the optimizer's by",
            hint="Give the model with --model pkg.module:factory.",
        )
    from checkpoint_convert.readers.layouts import layout_from_names

    return layout_from_names(sharded, {**equal_matrices(sharded), **known.aliases}, part.name)
