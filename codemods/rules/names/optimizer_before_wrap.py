"""An optimizer that is built before the model is sharded.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_param.py` (`fully_shard` replaces every parameter by a
new one)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import (
    Edit,
    Finding,
    Module,
    Project,
    Safety,
    WrapCall,
    code,
    delete,
    finding,
    insert_after,
    rule,
    stands_alone,
)

_REMEDY = "build the optimizer after the model is sharded, from the sharded model's parameters"


@rule("optimizer", {"FM504": "an optimizer built before the model is sharded"}, order=20)
def optimizer(project: Project) -> Iterator[Finding]:
    """An optimizer built from `model.parameters()` before the wrap is moved behind it.

    With `use_orig_params=True` FSDP1 kept the parameter objects, so an optimizer built earlier trained
    them. `fully_shard` replaces every parameter: the old optimizer then updates tensors nobody uses, the
    loss stays as it is, and nothing is said.

        optimizer = AdamW(model.parameters())        model = shard(model)
        model = shard(model)                         optimizer = AdamW(model.parameters())

    Statements that need the optimizer (a scheduler) move along. Where the two are not in the same block, or
    something in between uses the optimizer in another way, the place is left to a person."""
    for module, call in _optimizer_calls(project):
        for owner in _models_of(project, module, call):
            wrap = _later_wrap(project, module, call, owner)
            if wrap is None:
                continue
            moved = _moved(module, module.statement(call), wrap)
            yield finding(
                module,
                call,
                "FM504",
                "`fully_shard` replaces parameters: an optimizer built before it would train nothing",
                remedy=_REMEDY,
                safety=Safety.SAFE if moved else Safety.MANUAL,
                edits=moved,
            )
            break


def _optimizer_calls(project: Project) -> Iterator[tuple[Module, ast.Call]]:
    """Every call that builds an optimizer, or calls a function of the project that builds and returns one."""
    builders: set[ast.AST] = set()
    for module in list(project.modules.values()):
        for call in module.calls():
            if project.links.builds_optimizer(module, call):
                yield module, call
                function = module.function(call)
                if function is not None:
                    builders.add(function)
    for module in list(project.modules.values()):
        for call in module.calls():
            symbol = project.resolve(module, call.func)
            if symbol is not None and symbol.node in builders and project.links.optimizers(module, call):
                yield module, call


def _models_of(project: Project, module: Module, call: ast.Call) -> list[ast.expr]:
    """What an optimizer's parameters are taken from, or what is given to the function that builds it."""
    owners = project.links.parameter_owners(module, call)
    given = [*call.args, *(k.value for k in call.keywords)]
    return owners or [a for a in given if isinstance(a, ast.Name | ast.Attribute)]


def _later_wrap(project: Project, module: Module, call: ast.Call, owner: ast.expr) -> ast.stmt | None:
    """The statement after an optimizer's in the same function that rebinds its model to a sharded one."""
    text, scope = ast.unparse(owner), module.scope_of(call)
    end = module.span(module.statement(call)).end
    for node in module.nodes(ast.Assign):
        assert isinstance(node, ast.Assign)
        if module.scope_of(node) is not scope or module.span(node).start < end or len(node.targets) != 1:
            continue
        if _takes(node.value, text) and any(
            isinstance(h, WrapCall) for h in project.links.held(module, node.value)
        ):
            return node
    return None


def _takes(value: ast.expr, text: str) -> bool:
    """Whether a call is given the model under that name."""
    if not isinstance(value, ast.Call):
        return False
    given = [*value.args, *(k.value for k in value.keywords)]
    return any(isinstance(a, ast.Name | ast.Attribute) and ast.unparse(a) == text for a in given) or any(
        _takes(a, text) for a in given
    )


def _moved(module: Module, first: ast.stmt, wrap: ast.stmt) -> list[Edit]:
    """Move a statement, and those after it that need what it binds, behind the wrap; empty where that is
    not safe."""
    block = _block_of(module, first)
    if block is None or wrap not in block or not isinstance(first, ast.Assign):
        return []
    start = _first_needed(block, first)
    between = block[block.index(start) + 1 : block.index(wrap)]
    moving, bound = [start], _bound(start)
    for statement in between:
        if bound & _names(statement):
            if not isinstance(statement, ast.Assign):
                return []
            moving.append(statement)
            bound |= _bound(statement)
    staying = [s for s in between if s not in moving]
    needed = {n for s in moving for n in _names(s)} - bound
    if any(_bound(s) & needed for s in staying) or bound & _names(wrap) or _renames(wrap, moving):
        return []
    if not all(stands_alone(module, s) for s in (*moving, wrap)):
        return []
    lines = code(
        module,
        "\n".join(f"{{s{i}}}" for i in range(len(moving))),
        **{f"s{i}": s for i, s in enumerate(moving)},
    )
    return [insert_after(module, wrap, lines), *(delete(module, s) for s in moving)]


def _renames(wrap: ast.stmt, moving: list[ast.stmt]) -> bool:
    """Whether the sharded model gets a name that the statements to be moved do not use."""
    assert isinstance(wrap, ast.Assign)
    return not any(ast.unparse(wrap.targets[0]) in ast.unparse(statement) for statement in moving)


def _first_needed(block: list[ast.stmt], first: ast.stmt) -> ast.stmt:
    """The statement before the optimizer's that lists the parameters for it, if there is one."""
    for statement in block[: block.index(first)]:
        if not isinstance(statement, ast.Assign) or not _bound(statement) & _names(first):
            continue
        if "parameters()" in ast.unparse(statement.value):
            return statement
    return first


def _block_of(module: Module, statement: ast.stmt) -> list[ast.stmt] | None:
    parent = module.parent(statement)
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and statement in block:
            return block
    return None


def _names(statement: ast.stmt) -> set[str]:
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}


def _bound(statement: ast.stmt) -> set[str]:
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
