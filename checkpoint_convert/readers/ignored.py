"""What FSDP1 was told to leave alone (`ignored_modules`, `ignored_states`), given or looked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from checkpoint_convert.layout import ModelLayout, wrapped_modules
from checkpoint_convert.readers.options import ReadOptions

_MAX_MODULES = 2000


def ignored_of(layout: ModelLayout, options: ReadOptions) -> frozenset[str]:
    """Parameters FSDP1 did not flatten: named, below modules named, outside all units captured, or 0-dim."""
    names = [name.strip() for name in (options.ignored or "").split(",") if name.strip()]
    paths = {module.fqn for module in layout.modules}
    own = frozenset(names) & {spec.fqn for spec in layout.parameters}
    roots = [name for name in names if name in paths]
    roots += wrapped_modules(layout, [name for name in names if name not in paths | own])
    # FSDP1 refuses 0-dim parameters, so a job that has any told it to ignore them.
    scalars = {spec.fqn for spec in layout.parameters if not spec.shape}
    return frozenset(below(layout, roots)) | own | _outside(layout) | scalars


def below(layout: ModelLayout, roots: Sequence[str]) -> list[str]:
    """FQNs of the parameters inside of modules."""
    return [spec.fqn for spec in layout.parameters if any(spec.fqn.startswith(f"{root}.") for root in roots)]


def ignorable(layout: ModelLayout, units: Sequence[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Modules that may have been ignored, and their parameters: around no unit, inside of the root alone."""
    prefixes = [prefix for prefix in units if prefix]
    for module in layout.modules[:_MAX_MODULES]:
        inside = f"{module.fqn}."
        held = any(prefix == module.fqn or prefix.startswith(inside) for prefix in prefixes)
        within = any(module.fqn.startswith(f"{prefix}.") for prefix in prefixes)
        inner = frozenset(below(layout, [module.fqn]))
        if module.fqn and inner and not held and not within:
            yield module.fqn, inner


def _outside(layout: ModelLayout) -> frozenset[str]:
    """Parameters outside all units, where the layout lists the units' members."""
    units = layout.units or ()
    if not units or any(unit.members is None for unit in units):
        return frozenset()
    held = {name for unit in units for name in unit.members or ()}
    aliases = layout.aliases()
    return frozenset(
        spec.fqn
        for spec in layout.parameters
        if spec.fqn not in held and aliases.get(spec.fqn, spec.fqn) not in held
    )
