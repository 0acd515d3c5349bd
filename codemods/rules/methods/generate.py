"""`model.generate(...)` of a sharded model.

Source: `torch/distributed/fsdp/_fully_shard/_fully_shard.py` (`register_fsdp_forward_method`: hooks run for
`forward` and for methods that are registered).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Finding, No, Project, finding, rule


@rule("generate", {"FM311": "`generate` of a sharded model"})
def generate(project: Project) -> Iterator[Finding]:
    """`model.generate(...)` works on an FSDP2 model where it only calls the model and modules inside it.

    Transformers' `generate` calls the model itself, whose hooks gather the parameters: nothing has to be
    done, and no full parameters have to be put in place before. A `generate` of your own that uses
    parameters or layers of the root directly (`self.embed(x)`, `self.head.weight`) meets DTensors there;
    register it once the model is sharded:

        fully_shard(model)
        register_fsdp_forward_method(model, "generate")
    """
    for call in project.method_calls("generate"):
        if isinstance(project.sharded(call.module, call.receiver), No):
            continue
        text = ast.unparse(call.receiver)
        yield finding(
            call.module,
            call.node,
            "FM311",
            "`generate` gathers parameters where it calls the model or its units; one that uses the root's "
            f'parameters by itself needs `register_fsdp_forward_method({text}, "generate")`',
            is_note=True,
        )
