"""Sharded models that are kept under names which are put together when the program runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Finding, No, Project, finding, rule


@rule("setattr", {"FM541": "a sharded model is kept under a computed name"}, needs_wraps=True)
def computed_names(project: Project) -> Iterator[Finding]:
    """`setattr(self, f"model_{name}", FSDP(...))` keeps a model where no text names it.

    What is done with it by `getattr`, or as `self.model_a`, cannot be seen to be done with a sharded model:
    its state dicts, `no_sync`, `clip_grad_norm_` and `summon_full_params` are looked through by a person.
    Nothing is said of a part that is put back into its place, `setattr(parent, name, FSDP(child))`."""
    wraps = {site.node for site in project.wraps}
    for module in project.looked_at:
        for call in module.called("setattr"):
            if (name := _computed_name(call)) is None:
                continue
            model = call.args[2]
            if model in wraps or not isinstance(project.sharded(module, model), No):
                yield finding(
                    module,
                    call,
                    "FM541",
                    f"a sharded model is kept as `{name}`: what is done with it by that name is not followed",
                    remedy="look for its `state_dict`, `load_state_dict`, `no_sync`, `clip_grad_norm_`, and "
                    "translate them as those of other models",
                )


def _computed_name(call: ast.Call) -> str | None:
    """The name that `setattr` is given, where it is put together at the call."""
    match call:
        case ast.Call(func=ast.Name(), args=[_, ast.JoinedStr() | ast.BinOp() | ast.Call() as name, _]):
            return ast.unparse(name)
    return None
