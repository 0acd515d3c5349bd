"""Places that replace parts of FSDP1's own code.

Source: `torch/distributed/fsdp` (FSDP2 shares none of its runtime with FSDP1)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import FSDP, Finding, Module, Project, Symbol, finding, rule
from codemods.torch_names import is_fsdp1

_PREFIX = "torch.distributed.fsdp."
_REMEDY = (
    "remove it: FSDP2 does not run that code; what it was for may be a method of `FSDPModule` "
    "(`set_all_reduce_hook`, `set_custom_reduce_scatter`, `set_reshard_after_forward`)"
)


@rule("patched internals", {"FM524": "a part of FSDP1's own code is replaced"})
def patched_internals(project: Project) -> Iterator[Finding]:
    """A function or method of FSDP1 that is replaced (`_runtime_utils._post_backward_hook = mine`) is left to
    a person.

    FSDP2 shares no code with FSDP1's runtime, so that such a patch changes nothing any more, without a word:
    whatever it corrected or added is gone. Found: assignments to names in `torch.distributed.fsdp` and to
    attributes of FSDP1's class, `setattr` on them, and strings that name FSDP1's private modules, as
    `unittest.mock.patch` takes them."""
    for module in project.naming:
        for node in module.nodes(ast.Attribute):
            assert isinstance(node, ast.Attribute)
            if isinstance(node.ctx, ast.Store) and _is_fsdp1s(project.outside(module, node.value)):
                yield _finding(module, node, ast.unparse(node))
        for call in module.calls():
            match call:
                case ast.Call(func=ast.Name(id="setattr"), args=[holder, ast.Constant(value=str(name)), *_]):
                    if _is_fsdp1s(project.outside(module, holder)):
                        yield _finding(module, call, f"{ast.unparse(holder)}.{name}")
                case ast.Call(args=[ast.Constant(value=str(name)), *_]) if name.startswith(f"{_PREFIX}_"):
                    if ast.unparse(call.func).rpartition(".")[2] in ("patch", "setattr"):
                        yield _finding(module, call, name)


def _is_fsdp1s(symbol: Symbol | None) -> bool:
    """Whether a name is FSDP1's class or one of its modules."""
    if symbol is None or symbol.module is not None:
        return False
    name = symbol.name
    if name.startswith(f"{_PREFIX}_fully_shard"):
        return False
    return name == FSDP or name == _PREFIX.rstrip(".") or is_fsdp1(name) or name.startswith(f"{_PREFIX}_")


def _finding(module: Module, node: ast.AST, what: str) -> Finding:
    return finding(
        module, node, "FM524", f"`{what}` is replaced here, which FSDP2 never runs", remedy=_REMEDY
    )
