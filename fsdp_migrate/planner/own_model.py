"""The model to plan for: from its factory on the meta device to tensors of the device it is measured on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from checkpoint_convert.layout import ModelLayout
from checkpoint_convert.meta_model import build_on_meta
from checkpoint_convert.module_layout import layout_of, own_modules
from checkpoint_convert.readers.layouts import wrapped_units
from fsdp_migrate.errors import UsageError
from fsdp_migrate.planner.model import Job, ModelFacts


@dataclass(frozen=True, slots=True)
class OwnModel:
    """A model that is not sharded yet.

    Attributes:
        units: FQN and module of what is to be wrapped, the root not among them, in the model's order.
        layout: of the model as the factory built it.
    """

    module: nn.Module
    units: tuple[tuple[str, nn.Module], ...]
    layout: ModelLayout


def build(job: Job) -> OwnModel:
    """Call the factory; it stays on the meta device until `materialise`.

    Raises:
        LayoutError: it cannot be built, or has no module of a class of `--wrap`.
        UsageError: nothing in it is trained, or it is lazy.
    """
    model = build_on_meta(job.model)
    lazy = [name for name, one in model.named_parameters() if isinstance(one, UninitializedParameter)]
    if lazy:
        raise UsageError(
            f"{job.model}: {lazy[0]} gets its shape with the first batch (a lazy module)",
            hint="Let the factory return a model whose parameters have shapes; FSDP needs them too.",
        )
    if not any(one.requires_grad for one in model.parameters()):
        raise UsageError(
            f"{job.model}: no parameter of the model requires gradients, so that there is nothing to train",
            hint="Let the factory return the model as the job trains it.",
        )
    layout = layout_of(model, job.model)
    prefixes = wrapped_units(model, layout, job.wrap) if job.wrap else ()
    wanted = set(prefixes)
    found = [(path, module) for path, module in own_modules(model) if path in wanted]
    units = {id(module): (path, module) for path, module in reversed(found)}
    return OwnModel(model, tuple(reversed(units.values())), layout)


def facts_of(own: OwnModel, job: Job) -> ModelFacts:
    """What a reader should know of a model before the numbers."""
    parameters = list(own.module.parameters())
    units = tuple(path for path, _ in own.units)
    return ModelFacts(
        sum(one.numel() for one in parameters),
        sum(one.numel() for one in parameters if one.requires_grad),
        units,
        "" if job.wrap else _what_to_wrap(own.module),
    )


def _what_to_wrap(model: nn.Module) -> str:
    """The classes that transformers never splits, else those of the longest list of alike modules."""
    named = getattr(model, "_no_split_modules", None)
    if named:
        return ",".join(sorted(named))
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) > 1]
    alike = [one for one in lists if len({type(item) for item in one}) == 1]
    if not alike:
        return ""
    kind = type(max(alike, key=lambda one: sum(p.numel() for p in one.parameters()))[0])
    return f"{kind.__module__}:{kind.__qualname__}"


def materialise(model: nn.Module, dtype: torch.dtype | None) -> None:
    """New tensors on the CPU for all of a model's, tied ones still tied.

    Args:
        dtype: of the floating point ones, if given.
    """
    made: dict[int, Tensor] = {}

    def fresh(tensor: Tensor) -> Tensor:
        if id(tensor) not in made:
            kind = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
            made[id(tensor)] = _like(tensor, kind)
            made[id(made[id(tensor)])] = made[id(tensor)]
        return made[id(tensor)]

    for module in model.modules():
        # Plain attributes are what some models keep their rotary tables in.
        for held in (module._parameters, module._buffers, vars(module)):
            for name, value in list(held.items()):
                if isinstance(value, Tensor):
                    held[name] = fresh(value)  # type: ignore[assignment]


def _like(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    new = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=dtype, device="cpu")
    return nn.Parameter(new, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else new


def replace_modules(model: nn.Module, new: dict[int, nn.Module]) -> None:
    """Put other modules in the place of some, wherever they are registered.

    Args:
        new: by the id of the module to replace.
    """
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            if child is not None and id(child) in new and new[id(child)] is not module:
                module._modules[name] = new[id(child)]
