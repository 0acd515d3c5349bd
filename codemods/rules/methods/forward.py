"""`model.forward(x)` called directly.

Source: `FullyShardedDataParallel.forward`, `FSDPModule` (hooks run through `Module.__call__`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Finding, No, Project, Safety, code, finding, replace, rule


@rule("forward", {"FM308": "`forward` of a sharded model called directly"})
def forward(project: Project) -> Iterator[Finding]:
    """`model.forward(x)` becomes `model(x)`.

    FSDP1's wrapper gathered parameters in its own `forward`. FSDP2 does so in hooks, and hooks run only
    when the model is called: `model.forward(x)` meets sharded parameters and fails with "got mixed
    torch.Tensor and DTensor"."""
    for call in project.method_calls("forward"):
        if isinstance(call.receiver, ast.Call) or isinstance(project.sharded(call.module, call.receiver), No):
            continue
        assert isinstance(call.node.func, ast.Attribute)
        yield finding(
            call.module,
            call.node,
            "FM308",
            "FSDP2's hooks run only when the model is called",
            safety=Safety.SAFE,
            edits=[replace(call.module, call.node.func, code(call.module, "{model}", model=call.receiver))],
        )
