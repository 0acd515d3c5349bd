"""`model.module`, `model._fsdp_wrapped_module`.

Source: `FullyShardedDataParallel.module`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Finding, Maybe, Module, No, Project, Safety, code, finding, replace, rule

_NAMES = ("module", "_fsdp_wrapped_module")


@rule("module", {"FM307": "the module inside the FSDP1 wrapper"})
def module(project: Project) -> Iterator[Finding]:
    """`model.module` becomes `model`: `fully_shard` changes the module in place, there is no wrapper around
    it.

        names = [name for name, _ in model.module.named_children()]
        names = [name for name, _ in model.named_children()]

    Where the name holds a sharded model on some paths and something else on others (DistributedDataParallel
    keeps its `.module`), `getattr(model, "module", model)` is right for both."""
    for home in list(project.modules.values()):
        for node in home.nodes(ast.Attribute):
            assert isinstance(node, ast.Attribute)
            if node.attr not in _NAMES or not isinstance(node.ctx, ast.Load):
                continue
            holding = project.sharded(home, node.value)
            if isinstance(holding, No):
                continue
            if isinstance(holding, Maybe) and node.attr == "module" and not _is_guarded(home, node):
                new = code(home, 'getattr({model}, "module", {model})', model=node.value)
            else:
                new = code(home, "{model}", model=node.value)
            yield finding(
                home,
                node,
                "FM307",
                f"`.{node.attr}` of an FSDP2 model does not exist: the model is the module itself",
                safety=Safety.SAFE,
                edits=[replace(home, node, new)],
            )


def _is_guarded(home: Module, node: ast.Attribute) -> bool:
    """Whether the place is reached only when an `isinstance` test of the same name holds."""
    text = ast.unparse(node.value)
    child: ast.AST = node
    for parent in home.ancestors(node):
        test = parent.test if isinstance(parent, ast.If | ast.IfExp) else None
        body = parent.body if isinstance(parent, ast.If) else [getattr(parent, "body", None)]
        if test is not None and any(child is part for part in body):
            words = ast.unparse(test)
            if words.startswith(f"isinstance({text},") and "DistributedDataParallel" not in words:
                return True
        child = parent
    return False
