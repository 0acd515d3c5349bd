"""Methods other than `forward` that compute with a sharded model's parameters.

Source: `torch/distributed/fsdp/_fully_shard/_fully_shard.py` (`register_fsdp_forward_method`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.entry_methods import entry_methods, is_known
from codemods.rule import Finding, No, Project, Safety, code, finding, insert_after, rule


@rule("entry method", {"FM311": "a method other than `forward` that needs gathered parameters"})
def entry_method(project: Project) -> Iterator[Finding]:
    """`model.encode(x)`, where `encode` uses the model's parts itself, is registered where the model is
    sharded.

    FSDP2 gathers parameters when the model is called. Another method meets sharded ones and fails with "got
    mixed torch.Tensor and DTensor", unless it is registered:

        fully_shard(model)
        register_fsdp_forward_method(model, "encode")

    One that writes to parameters (`nn.init.normal_(self.head.weight)`, `self.scale.data.clamp_(0, 4)`) works
    on the shards and is not registered: what it wrote to gathered parameters would be lost.
    A method that only calls the model needs nothing; so does `generate` of most libraries, which is noted.
    Where the wrap's result has no name of its own, or the model is sharded on some paths only, nothing is
    registered: the failure is a loud one."""
    entries = entry_methods(project)
    for call in project.method_calls("generate"):
        holding = project.sharded(call.module, call.receiver)
        if isinstance(holding, No) or any(is_known(project.links, s, "generate") for s in holding.sites):
            continue
        if not any(entry.name == "generate" for entry in entries):
            yield finding(
                call.module,
                call.node,
                "FM311",
                "`generate` gathers parameters where it calls the model; one that uses the model's parts "
                'itself needs `register_fsdp_forward_method(model, "generate")`',
                is_note=True,
            )
    for found in entries:
        edits = []
        for site, statement in found.places:
            model = ast.unparse(statement.targets[0])
            line = code(
                None,
                "{torch.distributed.fsdp.register_fsdp_forward_method}({model}, {name})",
                model=model,
                name=f'"{found.name}"',
            )
            edits.append(insert_after(site.module, statement, line))
        yield finding(
            found.call.module,
            found.call.node,
            "FM311",
            f"`{found.name}` computes with parameters: it is registered to gather them as `forward` does",
            safety=Safety.SAFE,
            edits=edits,
        )
