"""`--modernize units`: units that FSDP1 needed to keep trained parameters apart from frozen ones.

Source: `torch.distributed.fsdp._flat_param` ("Must flatten tensors with uniform `requires_grad`"); FSDP2
shards each parameter by itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.custom_policies import POLICIES_DISPLAY, dropped_policies, serves_only
from codemods.editing.code import delete
from codemods.editing.removal import delete_elements
from codemods.rule import Finding, Module, Project, Safety, finding, rule

_WRAP = "torch.distributed.fsdp.wrap."


@rule(
    "units of trained parameters",
    {"FM125": "a policy that made units of trained parameters is dropped (`--modernize units`)"},
    order=75,
)
def trainable_units(project: Project) -> Iterator[Finding]:
    """With `--modernize units`, policies that ask for `requires_grad` go from the lists of `_or_policy`.

    FSDP1 flattened the parameters of a unit into one, so frozen and trained ones had to be in units apart:
    programs that fine-tune with LoRA make each trained leaf a unit. FSDP2 shards each parameter by itself;
    without those units there are fewer, larger collectives. The units change, and with them when memory is
    held, so it is done on request only. A list that has no other policy stays as it is.
    """
    if "units" not in project.options.modernize:
        return
    for use in project.uses(f"{_WRAP}_or_policy"):
        call = use.module.parent(use.node)
        if not isinstance(call, ast.Call):
            continue
        policies = next((k.value for k in call.keywords if k.arg == "policies"), None)
        going = dropped_policies(project, use.module, policies)
        if isinstance(policies, POLICIES_DISPLAY) and going:
            yield _dropped(project, use.module, policies, going)


def _dropped(
    project: Project, module: Module, policies: ast.List | ast.Tuple | ast.Set, going: list[ast.expr]
) -> Finding:
    served = [delete(module, statement) for policy in going for statement in serves_only(module, policy)]
    return finding(
        module,
        going[0],
        "FM125",
        "frozen and trained parameters can share a unit: the policy of trained parameters goes",
        safety=Safety.SAFE,
        edits=[*delete_elements(module, policies, going), *served],
        fades=True,  # where the whole policy is written out
    )
