"""What flat parameters do not contain: the model's parameters by name, shape and order, and its FSDP units.

A layout comes from a model built on the meta device (`meta_model`), from a `layout.json` that the old job
wrote (`capture`), or from the names of a state dict. Nothing here needs torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.model import BY_TORCH_NAME, DType, numel

FORMAT = "fsdp-migrate layout"
VERSION = 1


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """One registration of a parameter: a module's attribute that holds it.

    Attributes:
        fqn: without wrapper prefixes.
        stride: in elements.
        tensor: a number equal for all registrations of one tied parameter.
        slot: a number equal for all paths to one registration, where a module is reachable by two.
    """

    fqn: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: DType
    requires_grad: bool
    tensor: int
    slot: int

    @property
    def numel(self) -> int:
        """Elements."""
        return numel(self.shape)

    @property
    def module(self) -> str:
        """FQN of the module that owns it, "" for the root."""
        return self.fqn.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class ModuleSpec:
    """A module: its FQN, and its class and that class's bases, dotted."""

    fqn: str
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """An FSDP1 unit.

    Attributes:
        prefix: FQN of the wrapped module, "" for the root.
        members: FQNs its flat parameter holds, in order, tied ones once; None where not known.
        sharded: False where every rank has all of it (NO_SHARD), which a job may ask for some of its units.
    """

    prefix: str
    members: tuple[str, ...] | None = None
    sharded: bool = True


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """A model's parameters and modules, in the order of `named_modules(remove_duplicate=False)`.

    Attributes:
        parameters: every registration, tied ones repeated.
        buffers: FQNs of persistent buffers.
        units: the FSDP1 units, where they are known.
        groups: FQNs per parameter group of the optimizer, in its order, where they are known.
        torch_version: of the torch the layout was captured under; None for a model built today.
        origin: for messages: the factory or the file.
    """

    parameters: tuple[ParameterSpec, ...]
    modules: tuple[ModuleSpec, ...]
    buffers: tuple[str, ...] = ()
    units: tuple[UnitSpec, ...] | None = None
    groups: tuple[tuple[str, ...], ...] | None = None
    torch_version: str | None = None
    world_size: int | None = None
    use_orig_params: bool | None = None
    origin: str = field(default="", compare=False)

    def unique_parameters(self) -> tuple[ParameterSpec, ...]:
        """Each parameter once, as `named_parameters()` gives them."""
        first: dict[int, ParameterSpec] = {}
        for spec in self.parameters:
            first.setdefault(spec.tensor, spec)
        return tuple(first.values())

    def whole_units(self) -> frozenset[str]:
        """Prefixes of the units of which every rank has all, where there are others."""
        found = frozenset(unit.prefix for unit in self.units or () if not unit.sharded)
        return found if len(found) < len(self.units or ()) else frozenset()

    def aliases(self) -> dict[str, str]:
        """Names of tied parameters -> the first name."""
        first: dict[int, str] = {}
        found = {}
        for spec in self.parameters:
            if first.setdefault(spec.tensor, spec.fqn) != spec.fqn:
                found[spec.fqn] = first[spec.tensor]
        return found


def wrapped_modules(layout: ModelLayout, classes: Sequence[str]) -> tuple[str, ...]:
    """FQNs of modules of the given classes or their subclasses; dotted, `pkg.module:Class`, or the bare name.

    Raises:
        LayoutError: a class the model has no module of.
    """
    found: dict[str, None] = {}
    for name in classes:
        wanted = name.replace(":", ".")
        here = [
            module.fqn
            for module in layout.modules
            if any(known == wanted or known.rpartition(".")[2] == wanted for known in module.classes)
        ]
        if not here:
            raise LayoutError(
                f"{layout.origin}: the model has no module of class {name}",
                hint="Name the classes the FSDP1 policy wrapped, as pkg.module:Class, separated by commas.",
            )
        found.update(dict.fromkeys(here))
    return tuple(fqn for fqn in found if fqn)


def to_json(layout: ModelLayout) -> str:
    """The text of a `layout.json`."""
    head = {
        "format": FORMAT,
        "version": VERSION,
        "torch": layout.torch_version,
        "world_size": layout.world_size,
        "use_orig_params": layout.use_orig_params,
        "buffers": layout.buffers,
        "param_groups": layout.groups,
    }
    parameters = [_parameter_json(spec) for spec in layout.parameters]
    modules = [{"fqn": module.fqn, "classes": module.classes} for module in layout.modules]
    units = None if layout.units is None else [_unit_json(unit) for unit in layout.units]
    lines = [f'"{key}": {json.dumps(value)}' for key, value in head.items()]
    lines += [_rows("parameters", parameters), _rows("modules", modules)]
    lines.append('"units": null' if units is None else _rows("units", units))
    return "{" + ",\n".join(lines) + "}\n"


def _parameter_json(spec: ParameterSpec) -> dict[str, object]:
    return {
        "fqn": spec.fqn,
        "shape": spec.shape,
        "stride": spec.stride,
        "dtype": spec.dtype.torch_name,
        "requires_grad": spec.requires_grad,
        "tensor": spec.tensor,
        "slot": spec.slot,
    }


def _unit_json(unit: UnitSpec) -> dict[str, object]:
    said: dict[str, object] = {"prefix": unit.prefix, "members": unit.members}
    return said if unit.sharded else {**said, "sharded": False}


def _rows(key: str, items: Sequence[object]) -> str:
    """One item a line: such a file is looked at, and compared line by line."""
    return f'"{key}": [\n' + ",\n".join(f"  {json.dumps(item)}" for item in items) + "\n]"


def read_layout(path: Path) -> ModelLayout:
    """Read a `layout.json`.

    Raises:
        LayoutError: it is none, or is of a later version.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("format") != FORMAT or document.get("version") != VERSION:
            raise LayoutError(
                f"{path}: is no {FORMAT} of version {VERSION}",
                hint="Write it with capture_layout(model) in the old job, or fsdp-migrate capture-layout.",
            )
        return _from_json(document, str(path))
    except OSError as error:
        raise LayoutError(f"{path}: {error.strerror}", hint="Check the path.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LayoutError(
            f"{path}: is no layout: {error}",
            hint="Write it with capture_layout(model) in the old job, or with fsdp-migrate capture-layout.",
        ) from None


def _from_json(document: Mapping[str, Any], origin: str) -> ModelLayout:
    return ModelLayout(
        parameters=tuple(_parameters(document["parameters"])),
        modules=tuple(ModuleSpec(item["fqn"], tuple(item["classes"])) for item in document["modules"]),
        buffers=tuple(document["buffers"]),
        units=document["units"] and tuple(map(_unit, document["units"])),
        groups=document["param_groups"] and tuple(map(tuple, document["param_groups"])),
        torch_version=document["torch"],
        world_size=document["world_size"],
        use_orig_params=document["use_orig_params"],
        origin=origin,
    )


def _unit(item: Mapping[str, Any]) -> UnitSpec:
    members = None if item["members"] is None else tuple(item["members"])
    return UnitSpec(item["prefix"], members, item.get("sharded", True) is not False)


def _parameters(items: Sequence[Mapping[str, Any]]) -> Iterator[ParameterSpec]:
    for item in items:
        shape, stride = tuple(item["shape"]), tuple(item["stride"])
        if len(shape) != len(stride) or any(type(size) is not int or size < 0 for size in (*shape, *stride)):
            raise ValueError(f"{item['fqn']} has shape {shape} and stride {stride}")
        yield ParameterSpec(
            str(item["fqn"]),
            shape,
            stride,
            BY_TORCH_NAME[item["dtype"]],
            bool(item["requires_grad"]),
            int(item["tensor"]),
            int(item["slot"]),
        )
