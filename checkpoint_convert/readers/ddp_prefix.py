"""The `module.` in front of every name: DistributedDataParallel's, or that of a model which has a `module`.

Both look alike. FSDP1 writes names as the model has them, and so do its optimizer state dicts; a layout
knows the model's names. Where none of these speaks, a whole file is taken for DistributedDataParallel's,
and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from checkpoint_convert.model import Notice, SourceFormat
from checkpoint_convert.readers.names import clean, ddp_prefix
from checkpoint_convert.readers.options import ReadOptions
from checkpoint_convert.readers.parts import Part

if TYPE_CHECKING:
    from checkpoint_convert.layout import ModelLayout

TAKEN_OFF = "CK106"
"""Every name of a whole file began with `module.`, which was taken off."""


def without_ddp_prefix(
    part: Part, optimizer: Part | None, layout: ModelLayout | None, options: ReadOptions
) -> Part:
    """The model's part under the model's own names."""
    prefix = ddp_prefix(part.model or ())
    if not prefix or options.names_are_exact:
        return part
    if layout is not None:
        off = not _all_begin((spec.fqn for spec in layout.parameters), prefix)
        return _renamed(part, prefix) if off else part
    if part.model_format not in (SourceFormat.FULL, SourceFormat.SAFETENSORS):
        return part
    saved = optimizer.optimizer if optimizer is not None else None
    if saved is not None and not saved.by_number and _all_begin(map(str, saved.state), prefix):
        return part
    text = (
        f"{part.name}: every name begins with {prefix}, which was taken for DistributedDataParallel's and "
        "taken off; if it is the model's own, say so with --model"
    )
    return replace(_renamed(part, prefix), notices=(*part.notices, Notice(TAKEN_OFF, text)))


def _all_begin(names: Iterable[str], prefix: str) -> bool:
    found = [clean(name) for name in names]
    return bool(found) and all(name.startswith(prefix) for name in found)


def _renamed(part: Part, prefix: str) -> Part:
    return replace(
        part,
        model={name[len(prefix) :]: source for name, source in (part.model or {}).items()},
        local=tuple({name[len(prefix) :]: value for name, value in model.items()} for model in part.local),
        loadable_as_is=False,
    )
