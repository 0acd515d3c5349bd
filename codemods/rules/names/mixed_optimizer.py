"""An optimizer over sharded and plain parameters together.

Source: `torch/optim/optimizer.py` (`_default_to_fused_or_foreach` counts DTensor among the types that the
`foreach` implementation takes), `torch/distributed/tensor` (which raises for a list of both kinds)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.ignored_parameters import ignores_any
from codemods.rule import (
    Finding,
    Module,
    No,
    Project,
    Safety,
    WrapCall,
    append_argument,
    finding,
    rule,
)

_OPTIMIZERS = ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD")


@rule("mixed optimizer", {"FM528": "an optimizer over sharded and plain parameters together"})
def mixed_optimizer(project: Project) -> Iterator[Finding]:
    """Where some parameters are ignored, the optimizer of the model gets `foreach=False`.

    Ignored parameters stay plain tensors, the others become DTensors. On GPUs the optimizers of torch take
    all parameters of a group in one call by default (`foreach`), which raises "got mixed torch.Tensor and
    DTensor". One parameter at a time gives the same numbers. An optimizer that asks for `foreach` or `fused`
    is left to a person: give it the ignored parameters in a group of their own."""
    sites = [site for site in project.wraps if ignores_any(project, site)]
    for module in project.looked_at if sites else ():
        for call in module.calls():
            symbol = project.outside(module, call.func)
            name = symbol.name if symbol is not None else ""
            if not name.startswith("torch.optim.") or name.rpartition(".")[2] not in _OPTIMIZERS:
                continue
            if not _is_of(project, module, call, sites):
                continue
            asked = {k.arg: k.value for k in call.keywords if k.arg in ("foreach", "fused")}
            if any(isinstance(v, ast.Constant) and not v.value for v in asked.values()):
                continue
            yield finding(
                module,
                call,
                "FM528",
                "this optimizer has sharded and plain, ignored parameters, which one call cannot update",
                remedy="give the ignored parameters a group of their own",
                safety=Safety.MANUAL if asked else Safety.SAFE,
                edits=[] if asked else [append_argument(module, call, "foreach=False")],
            )


def _is_of(project: Project, module: Module, call: ast.Call, sites: list[WrapCall]) -> bool:
    """Whether an optimizer is of a model that one of these wraps made."""
    for owner in project.links.parameter_owners(module, call):
        holding = project.sharded(module, owner)
        if not isinstance(holding, No) and any(site in holding.sites for site in sites):
            return True
    return False
