"""What `accelerator.prepare(...)` is given where Accelerate shards with FSDP2.

Source: accelerate 1.15 `accelerator.py` (`prepare`, `prepare_model`, `_prepare_fsdp2`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.library_models import LibraryModel
from codemods.analysis.spoken_names import says_no_model, says_optimizer
from codemods.rule import Finding, Module, Project, finding, rule

_TOGETHER = (
    "build the optimizer from the model's parameters before, and give both to one `accelerator.prepare(...)`"
)
_ONE = "prepare one model with its optimizer; shard a frozen one with `fully_shard`, or leave it whole"


@rule(
    "accelerator.prepare",
    {"FM624": "what Accelerate prepares under FSDP2: one model, together with its optimizer"},
    order=30,
)
def accelerate_prepare(project: Project) -> Iterator[Finding]:
    """Under FSDP2 Accelerate prepares one model, and its optimizer in the same call.

        model = accelerator.prepare(model)                     optimizer = AdamW(model.parameters())
        optimizer = AdamW(model.parameters())                  model, optimizer = accelerator.prepare(
        optimizer = accelerator.prepare(optimizer)                 model, optimizer
                                                               )

    With FSDP1 the order on the left was the one its documentation advised. With FSDP2 `prepare` raises a
    `ValueError` for a model without an optimizer, for an optimizer without a model and for two models:
    `fully_shard` makes new parameters, and only then can it put them into the optimizer. `prepare_model`
    raises too, unless it is for evaluation. Nothing is said of a call with arguments whose names do not tell
    what they are.
    """
    for call, told in project.links.by_libraries.items():
        said = _refused(project, call, told) if isinstance(call, ast.Call) else None
        if said is not None:
            message, remedy = said
            yield finding(told.module, call, "FM624", message, remedy=remedy, is_note=not told.is_certain)


def _refused(project: Project, call: ast.Call, told: LibraryModel) -> tuple[str, str] | None:
    """Why Accelerate refuses a call under FSDP2, and what to do."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name == "prepare_model":
        is_evaluation = any(k.arg == "evaluation_mode" for k in call.keywords) or len(call.args) > 2
        return None if is_evaluation else ("under FSDP2 Accelerate refuses `prepare_model`", _TOGETHER)
    if name != "prepare":
        return None
    models = 1 if told.positions == (None,) else len(told.positions)
    kinds = [_kind(project, told.module, argument) for argument in call.args]
    if models > 1:
        return "under FSDP2 Accelerate prepares one model alone", _ONE
    if "optimizer" in kinds:
        return (
            None if models else ("under FSDP2 Accelerate refuses an optimizer without its model", _TOGETHER)
        )
    is_known = len(call.args) == 1 or kinds.count("") == models
    if not models or not is_known:
        return None
    return "under FSDP2 Accelerate refuses a model without its optimizer", _TOGETHER


def _kind(project: Project, module: Module, argument: ast.expr) -> str:
    """What an argument is, by its name or by what it holds: nothing where that may be a model."""
    if says_optimizer(argument) or project.links.optimizers(module, argument):
        return "optimizer"
    return "other" if says_no_model(argument) else ""
