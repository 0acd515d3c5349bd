"""The dtype in which gradients wait between synchronisations.

Source: measured on torch 2.13; `torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py`
(`unsharded_accumulated_grad` is kept in the reduction's dtype)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import CallValue, Finding, Maybe, Project, Sharded, Value, WrapCall, finding, options, rule
from codemods.torch_names import MIXED_PRECISION_FIELDS
from codemods.wrap_site import arguments_of

_LOW = ("bfloat16", "float16", "half")


@rule(
    "accumulation in reduce_dtype", {"FM521": "gradients that wait for a synchronisation have another dtype"}
)
def accumulation_precision(project: Project) -> Iterator[Finding]:
    """With low-precision compute and float32 reduction, unsynchronised gradients wait in float32 now.

    FSDP1 added up the gradients of `no_sync` micro-batches in the compute dtype (bfloat16), FSDP2 adds them
    up in `reduce_dtype` (float32). FSDP2's sums are the more accurate ones; results differ by about
    the rounding of bfloat16, and nothing brings the old sums back."""
    for module in project.looked_at:
        for node in module.attributes("no_sync"):
            holding = project.sharded(module, node.value)
            sites = holding.sites if isinstance(holding, Sharded | Maybe) else ()
            if any(_differs(project, site) for site in sites):
                yield finding(
                    module,
                    node,
                    "FM521",
                    "FSDP1 added up these gradients in the compute dtype, FSDP2 does so in `reduce_dtype`: "
                    "more exact, and different",
                    is_note=True,
                )


def _differs(project: Project, site: WrapCall) -> bool:
    """Whether a wrap can reduce in a wider dtype than it computes in."""
    values = [a.value for a in arguments_of(project, site)[0] if a.name == "mixed_precision"]
    return any(_is_wider(value) for given in values for value in options(given))


def _is_wider(value: Value) -> bool:
    if not isinstance(value, CallValue) or not value.function.name.endswith(".MixedPrecision"):
        return False
    given = {**dict(zip(MIXED_PRECISION_FIELDS, value.arguments, strict=False)), **value.keywords}
    compute, reduce = (ast.unparse(given[n]) if n in given else "" for n in ("param_dtype", "reduce_dtype"))
    return bool(compute) and bool(reduce) and compute != reduce and not reduce.endswith((*_LOW, "None"))
