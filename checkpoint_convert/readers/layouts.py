"""Where the names and shapes come from: the options, or the sharded model beside the optimizer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.layout import (
    ModelLayout,
    ModuleSpec,
    ParameterSpec,
    UnitSpec,
    read_layout,
    wrapped_modules,
)
from checkpoint_convert.model import TensorSource
from checkpoint_convert.readers.options import ReadOptions
from checkpoint_convert.stored_tensor import row_major


def given_layout(options: ReadOptions) -> ModelLayout | None:
    """The layout the caller pointed at; None if at none.

    Raises:
        LayoutError: it cannot be had.
    """
    if options.layout_from is not None:
        layout = read_layout(options.layout_from)
        return (
            _with_units(layout, wrapped_modules(layout, _classes(options.wrap))) if options.wrap else layout
        )
    if options.model is None:
        return None
    from checkpoint_convert.meta_model import build_on_meta
    from checkpoint_convert.module_layout import layout_of

    model = build_on_meta(options.model)
    layout = layout_of(model, options.model)
    if options.wrap is None:
        return layout
    return _with_units(layout, wrapped_units(model, layout, options.wrap))


def _classes(wrap: str) -> Sequence[str]:
    return [name.strip() for name in wrap.split(",") if name.strip()]


def wrapped_units(model: object, layout: ModelLayout, wrap: str) -> tuple[str, ...]:
    """FQNs of the modules of `model` that `--wrap` names: by classes, or by a policy object that is imported.

    Raises:
        LayoutError: there are none of a class, or the policy cannot be imported.
    """
    from checkpoint_convert.meta_model import load_name, policy_prefixes

    names = _classes(wrap)
    if len(names) == 1 and ":" in names[0]:
        policy = load_name(names[0], "wrap policy")
        if not isinstance(policy, type):
            return policy_prefixes(model, policy)  # type: ignore[arg-type]
    return wrapped_modules(layout, names)


def _with_units(layout: ModelLayout, prefixes: Sequence[str]) -> ModelLayout:
    return replace(layout, units=(UnitSpec(""), *(UnitSpec(prefix) for prefix in prefixes)))


def needed(layout: ModelLayout | None, where: str, what: str) -> ModelLayout:
    """The layout, or the error that says what to give.

    Raises:
        LayoutError: there is none.
    """
    if layout is None:
        raise LayoutError(
            f"{where}: {what}, which do not tell the parameters' names and shapes",
            hint="Give the model with --model pkg.module:factory, or a layout.json with --layout-from "
            "(written by capture_layout(model) in the old job, or by fsdp-migrate capture-layout).",
        )
    return layout


def layout_from_names(
    parameters: Mapping[str, TensorSource], aliases: Mapping[str, str], where: str
) -> ModelLayout:
    """A layout out of a sharded state dict, whose sharded tensors are the parameters.

    Classes are not known there; a module's path with its numbers taken out stands for its class, since
    blocks of a list are of one class.
    """
    numbers = {name: number for number, name in enumerate(parameters)}
    specs = tuple(
        ParameterSpec(
            name,
            tuple(source.shape),
            row_major(source.shape),
            source.dtype,
            True,
            numbers[aliases.get(name, name)],
            numbers[name],
        )
        for name, source in parameters.items()
    )
    paths: dict[str, None] = {"": None}
    for name in parameters:
        parts = name.split(".")[:-1]
        for depth in range(1, len(parts) + 1):
            paths[".".join(parts[:depth])] = None
    modules = tuple(ModuleSpec(path, (re.sub(r"\d+", "#", path),)) for path in paths)
    return ModelLayout(specs, modules, origin=where)


def memory_order(options: ReadOptions, layout: ModelLayout, seen: str | None) -> bool | None:
    """Whether the saver flattened non-contiguous parameters in memory order; None where that is not known.

    torch 2.6.0 was the first to do so (pytorch#137382).

    Raises:
        LayoutError: the version that was given is none.
    """
    version = options.saver_torch or layout.torch_version or seen
    match = re.match(r"(\d+)\.(\d+)", version or "")
    if match is None and options.saver_torch is not None:
        raise LayoutError(
            f"--saver-torch: {version!r} is no version of torch", hint="Write it as 2.5 or 2.5.1."
        )
    return (int(match.group(1)), int(match.group(2))) >= (2, 6) if match else None
