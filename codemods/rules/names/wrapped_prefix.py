"""Texts that name the wrapper inside of which FSDP1 keeps a module.

Source: `FullyShardedDataParallel` (`FSDP_WRAPPED_MODULE`, torch/distributed/fsdp/_common_utils.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.attribute_questions import is_read_where_met
from codemods.own_attributes import own_attributes
from codemods.rule import Edit, Finding, Module, Project, Safety, code, finding, replace, rule

_PREFIX = "_fsdp_wrapped_module"


@rule("_fsdp_wrapped_module", {"FM513": "a name prefix that FSDP2 does not make"})
def wrapped_prefix(project: Project) -> Iterator[Finding]:
    """In an FSDP2 model names carry no `_fsdp_wrapped_module.` prefix, and no module has such an attribute.

    `name.replace("_fsdp_wrapped_module.", "")` and `name.split("_fsdp_wrapped_module.")[-1]` are harmless and
    kept. A test for the prefix is reported, also where it stands in a variable. A question that is one way
    of several to see a block's class goes:

        if isinstance(m, A) or (hasattr(m, "_fsdp_wrapped_module") and isinstance(m._fsdp_wrapped_module, A)):
        if isinstance(m, A):

    Where a wrapper of the project's makes the same prefix, nothing changes, and that FSDP2 does not make it
    is noted.
    """
    is_own_too = bool(own_attributes(project, [_PREFIX]))
    for module in project.looked_at:
        for node in module.nodes(ast.Constant) if _PREFIX in module.text else ():
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if _PREFIX not in node.value:
                continue
            if is_own_too:
                if not own_attributes(project, [_PREFIX], [module]) and _decides(module, node):
                    yield _of_two_wrappers(module, node)
            elif (found := _without_question(module, node)) is not None:
                message = f"no module has a `{_PREFIX}`: what is asked beside it is enough"
                yield finding(module, found[0], "FM513", message, safety=Safety.SAFE, edits=[found[1]])
            elif _decides(module, node):
                left = node.value.replace(f"{_PREFIX}.", "")
                yield finding(
                    module,
                    node,
                    "FM513",
                    f"FSDP2 keeps parameter names as they are: nothing is called `{_PREFIX}`",
                    remedy=f"leave the prefix out: `{left}`"
                    if left and _PREFIX not in left
                    else "remove the test or split on the prefix",
                )


def _of_two_wrappers(module: Module, node: ast.Constant) -> Finding:
    message = f"a wrapper of the project's makes the prefix `{_PREFIX}` too; FSDP2 does not"
    remedy = "check that the model that is asked here goes through that wrapper"
    return finding(module, node, "FM513", message, remedy=remedy, is_note=True)


def _without_question(module: Module, node: ast.Constant) -> tuple[ast.expr, Edit] | None:
    """`A or (hasattr(x, "_fsdp_wrapped_module") and B)`, and the edit by which `A` is left of it."""
    question = module.parent(node)
    if not (isinstance(question, ast.Call) and getattr(question.func, "id", "") == "hasattr"):
        return None
    part = module.parent(question)
    if not (isinstance(part, ast.BoolOp) and isinstance(part.op, ast.And) and part.values[0] is question):
        return None
    whole = module.parent(part)
    if not (isinstance(whole, ast.BoolOp) and isinstance(whole.op, ast.Or)):
        return None
    first, *others = [value for value in whole.values if value is not part]
    new = code(module, "{x}", x=first)
    for other in others:
        new = (*new, " or ", *code(module, "{x}", x=other))
    return part, replace(module, whole, new)


def _decides(module: Module, node: ast.expr) -> bool:
    """Whether a text is compared, searched or split on, and not only replaced by something else."""
    parent = module.parent(node)
    if isinstance(parent, ast.Compare):
        return True
    if isinstance(parent, ast.Assign) and parent.value is node:
        return any(_decides(module, read) for name in parent.targets for read in _reads(module, name))
    if isinstance(parent, ast.BinOp | ast.JoinedStr | ast.FormattedValue | ast.IfExp):
        return _decides(module, parent)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        part = module.parent(parent)
        if parent.func.attr in ("split", "partition", "rpartition") and isinstance(part, ast.Subscript):
            return ast.unparse(part.slice) != "-1"  # what stands behind the prefix: all of it, without one
        return parent.func.attr in (
            "split",
            "startswith",
            "endswith",
            "index",
            "find",
            "partition",
            "rpartition",
            "count",
        )
    if isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "getattr":
        return len(parent.args) < 3  # with a default: the model itself, as it should be
    is_asked = isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "hasattr"
    return is_asked and isinstance(parent, ast.Call) and not is_read_where_met(module, parent)


def _reads(module: Module, name: ast.expr) -> Iterator[ast.Name]:
    """Where a variable is read, in its file."""
    found = module.scope_of(name).lookup(name.id) if isinstance(name, ast.Name) else None
    if found is None or not isinstance(name, ast.Name):
        return
    for node in module.named(name.id):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            other = module.scope_of(node).lookup(node.id)
            if other is not None and other[0] is found[0]:
                yield node
