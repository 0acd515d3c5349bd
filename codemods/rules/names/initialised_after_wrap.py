"""Weights that are initialised once the model is sharded.

Source: `torch/distributed/tensor/_random.py` (random numbers of DTensors are those of the whole tensor).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.analysis.entry_methods import INITIALISE
from codemods.rule import Finding, Module, No, Project, finding, rule

_FIRST_VALUES = re.compile(r"_*(?:re)?init(?:iali[sz]e)?_(?:\w+_)?(?:weights|params|parameters)")
"""Further names of such methods: `init_model_weights`, `_init_all_params`."""


@rule("reset_parameters", {"FM535": "weights are initialised after the model is sharded"})
def initialised_after_wrap(project: Project) -> Iterator[Finding]:
    """`model.reset_parameters()` behind the wrap draws other random numbers than before.

    Under FSDP1 it filled one-dimensional parts of this rank, with the random numbers of this rank: with one
    seed for all ranks, equal numbers in every part. Under FSDP2 parameters are DTensors: the numbers are
    those of the whole tensor, cut like it. Initial weights are other ones for the same seed; neither is
    wrong. That holds for the model under its own name, too: `fully_shard` changes it in place. To start from
    the same weights, initialise before sharding. Constants are the same either way.
    """
    further = {
        call.func.attr
        for module in (project.looked_at if project.wraps else ())
        for call in module.calls()
        if isinstance(call.func, ast.Attribute) and _FIRST_VALUES.fullmatch(call.func.attr)
    }
    for call in project.method_calls(*sorted(INITIALISE | further)):
        is_sharded = not isinstance(project.sharded(call.module, call.receiver), No)
        if is_sharded or _is_wrapped_before(project, call.module, call.receiver):
            yield finding(
                call.module,
                call.node,
                "FM535",
                "random numbers drawn into a sharded model are other ones under FSDP2: initial weights "
                "differ for the same seed",
                is_note=True,
            )


def _is_wrapped_before(project: Project, module: Module, model: ast.expr) -> bool:
    """Whether the model under that name was given to a wrap call above, in the same function."""
    text, start, function = ast.unparse(model), module.span(model).start, module.function(model)
    return any(
        site.module is module
        and site.wrapped is not None
        and ast.unparse(site.wrapped) == text
        and module.function(site.node) is function
        and module.span(site.node).end < start
        for site in project.wraps
    )
