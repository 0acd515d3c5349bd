"""FSDP1's private attributes.

Source: `torch/distributed/fsdp/_flat_param.py`, `_common_utils.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.own_attributes import own_attributes
from codemods.rule import (
    Edit,
    Finding,
    Module,
    No,
    Project,
    Safety,
    code,
    delete,
    finding,
    replace,
    rule,
)
from codemods.sources import names_fsdp

_REMEDIES = {
    "_handle": "FSDP2 has no handles: `module.reshard()` reshards, `parameter.to_local()` is a shard",
    "_handles": "FSDP2 has no handles: `module.reshard()` reshards, `parameter.to_local()` is a shard",
    "_all_handles": "walk `model.modules()` and test `isinstance(module, FSDPModule)`",
    **dict.fromkeys(
        (
            "flat_param",
            "_flat_param",
            "_is_flat_param",
            "_shard_param_infos",
            "_local_shard",
            "_mp_shard",
            "_full_param_padded",
        ),
        "there is no flat parameter: each DTensor has its own name and whole shape, `.to_local()` is this "
        "rank's part",
    ),
    "_fsdp_state": "FSDP2's state is private too: use the methods of `FSDPModule`",
    "_fully_sharded_module_to_handle": "walk `model.modules()` and test `isinstance(module, FSDPModule)`",
}
_RUNTIME = "torch.distributed.fsdp._runtime_utils"


@rule(
    "_handle",
    {"FM507": "FSDP1's private state"},
    where=dict.fromkeys((name.encode() for name in _REMEDIES), names_fsdp),
)
def private(project: Project) -> Iterator[Finding]:
    """Flat parameters, handles and other private state of FSDP1 have no counterpart.

    `_handle`, `_handles`, `_all_handles`, `flat_param` are left to a person with what to use instead, but
    not where a class of the project has such an attribute of its own.
    Resharding by hand has a public form:

        if isinstance(m, FSDP) and m._handle is not None:        if isinstance(m, FSDPModule):
            m._handle.reshard(True)                                  m.reshard()
    """
    own = own_attributes(project, _REMEDIES)
    for module in project.looked_at:
        translated = _resharding(project, module)
        for place, edits in translated.values():
            yield finding(
                module,
                place,
                "FM507",
                "a unit is resharded by its own method, handle or not",
                safety=Safety.SAFE,
                edits=edits,
            )
        for attribute in module.attributes(*_REMEDIES):
            outer = module.parent(attribute)
            if attribute in translated or (isinstance(outer, ast.Attribute) and outer.attr in _REMEDIES):
                continue  # `unit._handle.flat_param` is one thing to replace
            remedy = _REMEDIES[attribute.attr]
            is_sharded = not isinstance(project.sharded(module, attribute.value), No)
            if is_sharded or (module.says_fsdp and attribute.attr not in own):
                yield finding(
                    module,
                    attribute,
                    "FM507",
                    f"`{attribute.attr}` is private to FSDP1 and does not exist",
                    remedy=remedy,
                    fades=True,
                )


def _resharding(project: Project, module: Module) -> dict[ast.AST, tuple[ast.AST, list[Edit]]]:
    """`_handle` -> the call of `reshard` or the condition it stands in, and what becomes of that."""
    found: dict[ast.AST, tuple[ast.AST, list[Edit]]] = {}
    for call in module.calls():
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=unit, attr="_handle") as handle, attr="reshard")
            ):
                found[handle] = (call, [replace(module, call, code(module, "{unit}.reshard()", unit=unit))])
            case ast.Call(args=[ast.Name() | ast.Attribute() as unit, handle, *_]):
                symbol = project.outside(module, call.func)
                if symbol is not None and symbol.name == f"{_RUNTIME}._reshard":
                    edit = replace(module, call, code(module, "{unit}.reshard()", unit=unit))
                    alone = _only_for(module, call, handle)
                    place = alone[0].value if alone else handle
                    found[place] = (call, [edit, *(delete(module, one) for one in alone)])
    for test in module.nodes(ast.BoolOp) if found else ():
        match test:
            case ast.BoolOp(
                op=ast.And(),
                values=[
                    kept,
                    ast.Compare(left=ast.Attribute(attr="_handle") as handle, ops=[ast.IsNot()]),
                ],
            ):
                found[handle] = (test, [replace(module, test, code(module, "{kept}", kept=kept))])
    return found


def _only_for(module: Module, call: ast.Call, handle: ast.expr) -> list[ast.Assign]:
    """`handles = unit._handles` and `always = [True for h in handles]`, where the call alone needs them."""
    bound = {name: _bound_once(module, call, name) for name in call.args if isinstance(name, ast.Name)}
    kept = [statement for statement in bound.values() if statement is not None]
    own = bound.get(handle) if isinstance(handle, ast.Name) else None
    if own is None or not isinstance(own.value, ast.Attribute) or own.value.attr not in _REMEDIES:
        return []
    if any(s is not own and not isinstance(s.value, ast.ListComp) for s in kept):
        return []
    kept = [own, *(statement for statement in kept if statement is not own)]
    needing = {call, *kept}
    for statement in kept:
        reads = _reads_of(module, statement)
        if not all(needing.intersection(module.ancestors(read)) for read in reads):
            return []
    return kept


def _bound_once(module: Module, call: ast.Call, name: ast.Name) -> ast.Assign | None:
    """The statement of the call's function that gives a name its one value."""
    found = module.scope_of(call).bindings.get(name.id, [])
    statement = module.statement(found[0].node) if len(found) == 1 else None
    is_own = isinstance(statement, ast.Assign) and statement.value is found[0].value
    return statement if is_own and isinstance(statement, ast.Assign) else None


def _reads_of(module: Module, statement: ast.Assign) -> list[ast.Name]:
    target = statement.targets[0]
    function = module.function(statement)
    return [
        node
        for node in module.nodes(ast.Name)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and isinstance(target, ast.Name)
        and node.id == target.id
        and module.function(node) is function
    ]
