"""What the caller tells a reader that the files do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpoint_convert.model import SourceFormat


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Answers to what a source leaves open; every field has the answer "find out".

    Attributes:
        format: what the source is (`--from`).
        model: `pkg.module:factory`, called without arguments on the meta device.
        wrap: the FSDP1 policy: classes as `pkg.module:Block`, comma separated.
        ignored: what FSDP1 was told to leave alone: FQNs, or classes of modules, comma separated.
        layout_from: a `layout.json` that `capture_layout` wrote.
        saver_torch: version of torch that wrote the files, where it matters and they do not say.
        param_groups: parameter names per group, in the order the job gave them to its optimizer.
        keys: names in the files of the models and optimizers to take, where there are several (`--from-key`).
        keys_may_miss: the names are for another source, and only used where they fit this one.
        model_key: the top-level key of the model, where that is known; contents decide otherwise.
        use_model: False where only the optimizer is wanted, so that a missing model is no error.
        use_optimizer: False where only the model is wanted; the optimizer is then not even understood.
        names_are_exact: a conversion wrote it: no `module.` before its names is a wrapper's.
        only_listed: nothing is converted: what could not be is listed, and not refused.
    """

    format: SourceFormat | None = None
    model: str | None = None
    wrap: str | None = None
    ignored: str | None = None
    layout_from: Path | None = None
    saver_torch: str | None = None
    param_groups: Sequence[Sequence[str]] | None = None
    keys: tuple[str, ...] = ()
    keys_may_miss: bool = False
    model_key: str | None = None
    use_model: bool = True
    use_optimizer: bool = True
    only_listed: bool = False
    names_are_exact: bool = False
