"""An FSDP1 branch beside an FSDP2 branch."""

from __future__ import annotations

from collections.abc import Iterator

from codemods.dual_stack.choices import Choices
from codemods.dual_stack.places import all_spots, shown_spots, view
from codemods.dual_stack.spot import DROPPED, KEPT, Refused, Spot
from codemods.rule import Finding, Project, finding, rule

_NOTE = "FSDP1 and FSDP2 stand side by side; both branches stay (`--drop-fsdp1` removes FSDP1's)"
_REMEDY = "remove what is FSDP1's by hand, so that whoever chose it gets FSDP2 or is told: {reason}"


@rule(
    "FSDP1 beside FSDP2",
    {DROPPED: "FSDP1 and FSDP2 stand side by side", KEPT: "an FSDP1 branch that cannot be dropped"},
    order=5,
)
def dual_stack(project: Project) -> Iterator[Finding]:
    """With `--drop-fsdp1` the FSDP1 branch goes where an FSDP2 branch stands beside it.

        if cfg.strategy == "fsdp":                 if cfg.strategy in ("fsdp", "fsdp2"):
            model = FSDP(model)                        model = fully_shard(model)
        elif cfg.strategy == "fsdp2":              else:
            model = fully_shard(model)                 raise NotImplementedError(cfg.strategy)
        else:
            raise NotImplementedError(cfg.strategy)

    A branch is FSDP1's if it wraps with `FullyShardedDataParallel` or calls its static methods, FSDP2's if it
    calls `fully_shard`, itself or through functions and classes of the project. What then chose FSDP1 chooses
    FSDP2: configuration files and command lines go on working. That holds for `if` and `elif`, early returns,
    conditional expressions, `match`, and tables of functions.

    Questions that only tell the two apart are answered everywhere: `isinstance(model, FSDP)` beside
    `isinstance(model, FSDPModule)`, `fsdp_version(model) == 1` of a function of the project, and the setting
    itself, under whatever name it is handed on. `isinstance(model, FSDP)` alone asks whether a model is
    sharded: it stays, as a question for `FSDPModule` (FM501). `fsdp_version` of Accelerate's plugin is not
    the project's to decide, and Accelerate goes on making FSDP1 models for 1: there FSDP1's branch becomes a
    `raise`.

    What only the dropped branches used goes too, where that can be proven: imports, local values, functions,
    classes, constants, attributes, and parameters with what every call gives for them. A name that any file
    still mentions stays. A parameter that only the dropped branches gave goes too, its constant default in
    place of its reads; where something is decided by it, or a package offers its function, it stays, and that
    is said.

    What cannot be dropped soundly is left to a person (FM121): FSDP1 as one of several ways within its
    branch, a third branch that would get FSDP1's users without a word, code that refuses whatever is not
    FSDP1, a setting asked for by a part of its text, something registered by name, notebooks.

    Without the option both branches stay, and the wrap in the FSDP1 branch is translated where it stands.
    """
    if not project.options.drop_fsdp1:
        for spot in shown_spots(view(project)):
            yield finding(spot.module, spot.node, DROPPED, _NOTE, is_note=True)
        return
    short = project.dropped
    known = short.choices if short is not None else Choices()
    seen = view(project, known)
    for spot in all_spots(seen):
        if isinstance(spot.outcome, Refused) or spot.outcome:
            yield _left(spot)


def _left(spot: Spot) -> Finding:
    if isinstance(spot.outcome, Refused):
        reason, code = spot.outcome.reason, KEPT
    elif spot.module.path.endswith(".ipynb"):
        reason, code = "branches in notebooks are left alone", KEPT
    else:
        reason, code = "a comment says to leave it", DROPPED
    message = f"what is FSDP1's here is not dropped: {reason}"
    return finding(spot.module, spot.node, code, message, remedy=_REMEDY.format(reason=reason))
