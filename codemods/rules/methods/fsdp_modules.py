"""`FSDP.fsdp_modules(model, root_only=False)`.

Source: `FullyShardedDataParallel.fsdp_modules`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Finding, Project, Safety, argument, code, finding, replace, rule


@rule("fsdp_modules", {"FM306": "`FSDP.fsdp_modules`"})
def fsdp_modules(project: Project) -> Iterator[Finding]:
    """`FSDP.fsdp_modules(model)` becomes a list of the modules that are units.

    On an FSDP2 model the old call gives an empty list without a word.

        for unit in FSDP.fsdp_modules(model): ...
        for unit in [module for module in model.modules() if isinstance(module, FSDPModule)]: ...

    `root_only=True` has no public counterpart and is left to a person: keep the list of the models you
    sharded."""
    for use in project.static_calls("fsdp_modules"):
        model, root_only = argument(use.node, 0, "module"), argument(use.node, 1, "root_only")
        if model is None or not (
            root_only is None or (isinstance(root_only, ast.Constant) and not root_only.value)
        ):
            yield finding(
                use.module,
                use.node,
                "FM306",
                "`fsdp_modules(root_only=True)` has no FSDP2 counterpart; on an FSDP2 model it gives "
                "an empty list",
                remedy="name the root models here: they are the ones given last to `fully_shard`",
            )
            continue
        new = code(
            use.module,
            "[module for module in {model}.modules() if isinstance(module, "
            "{torch.distributed.fsdp.FSDPModule})]",
            model=model,
        )
        yield finding(
            use.module,
            use.node,
            "FM306",
            "units are the modules of type `FSDPModule`",
            safety=Safety.SAFE,
            edits=[replace(use.module, use.node, new)],
        )
