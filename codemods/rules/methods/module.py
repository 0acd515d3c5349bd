"""`model.module`, `model._fsdp_wrapped_module`.

Source: `FullyShardedDataParallel.module`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.class_questions import asks_for_classes, classes_of, questions
from codemods.analysis.conditions import conditions, decided_by
from codemods.analysis.library_calls import lightning_calls
from codemods.rule import (
    FSDP,
    Finding,
    Maybe,
    Module,
    No,
    Project,
    Safety,
    code,
    finding,
    replace,
    rule,
    unwrapping_loop,
)

_NAMES = ("module", "_fsdp_wrapped_module")


@rule("module", {"FM307": "the module inside the FSDP1 wrapper"})
def module(project: Project) -> Iterator[Finding]:
    """`model.module` becomes `model`: `fully_shard` changes the module in place, there is no wrapper around
    it.

        names = [name for name, _ in model.module.named_children()]
        names = [name for name, _ in model.named_children()]

    Where the name holds a sharded model on some paths and something else on others (DistributedDataParallel
    keeps its `.module`), `getattr(model, "module", model)` is right for both. What Fabric gives back keeps
    its `.module`: that is the model inside of Fabric's own wrapper."""
    is_fabric = any("fabric" in symbol.name for _, _, symbol in lightning_calls(project))
    for home in project.looked_at:
        for node in home.attributes(*_NAMES):
            if not isinstance(node.ctx, ast.Load):
                continue
            holding = project.sharded(home, node.value)
            asked = _classes_asked(project, home, node) if asks_for_classes(home) else None
            asked = asked or _asked_by_function(project, home, node)
            if isinstance(holding, No) and (asked is None or FSDP not in asked):
                continue
            if node.attr == "module" and not isinstance(holding, No) and not holding.sites and is_fabric:
                continue  # Fabric's own wrapper, which it has around models of every strategy
            if unwrapping_loop(home, node) is not None or _is_asked_for(home, node):
                continue  # what the loop asks is FM501's; with `hasattr` both kinds of model are right
            if (told := _left(project, home, node)) is not None:
                yield finding(home, node, "FM307", f"`.{node.attr}{told[0]}", remedy=told[1])
                continue
            # A question that names other classes too says more than what the assignments showed.
            is_certain = asked <= {FSDP} if asked is not None else not isinstance(holding, Maybe)
            if node.attr == "module" and not is_certain:
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
                # `model.module.method(...)` goes as a whole where the method's rule rewrites it.
                fades=True,
            )


def _left(project: Project, home: Module, node: ast.Attribute) -> tuple[str, str] | None:
    """What keeps the model itself from taking the place of its `.module`, and what to do about it."""
    if _is_given_to_itself(home, node):
        return (
            "` of an FSDP2 model does not exist, and with the model itself this call would come back "
            "without end",
            "return the model where it is an `FSDPModule`, and go on for other wrappers only",
        )
    loop = _loop_of_function(home, node)
    if loop is not None and FSDP in (_asked_in(project, home, loop.test) or ()):
        return (
            "` of an FSDP2 model does not exist, and the model stays what this loop asks for: it would "
            "not end",
            "ask for the classes of the other wrappers only",
        )
    if _is_call_taken(home, node):
        return (
            ".__call__` ran the module inside without FSDP1's hooks; an FSDP2 model has no module inside, "
            "and its own `__call__` calls `forward`",
            "leave `forward` as it is: under FSDP2 the model itself can be called",
        )
    return None


def _is_call_taken(home: Module, node: ast.Attribute) -> bool:
    """`m.forward = m.module.__call__`: with the model itself that would come back without end."""
    taken = home.parent(node)
    if not isinstance(taken, ast.Attribute) or taken.attr != "__call__":
        return False
    call = home.parent(taken)
    return not (isinstance(call, ast.Call) and call.func is taken)


def _classes_asked(project: Project, home: Module, node: ast.Attribute) -> set[str] | None:
    """The classes of which one is known to be the object's where the place is reached; None: nothing was
    asked. `?` stands for a class that was not found."""
    text = ast.unparse(node.value)
    for subject, classes, holds in questions(home, node):
        if holds and ast.unparse(subject) == text:
            return set().union(*(_names(project, home, one) for one in classes))
    return None


def _asked_by_function(project: Project, home: Module, node: ast.Attribute) -> set[str] | None:
    """The same where a function of the project asks: `return isinstance(m, (DDP, FSDP))`."""
    text = ast.unparse(node.value)
    for whole in conditions(home, node):
        for test, holds in decided_by(*whole):
            is_it = isinstance(test, ast.Call) and [ast.unparse(a) for a in test.args] == [text]
            if holds and is_it and (asked := _asked_in(project, home, test)) is not None:
                return asked
    return None


def _asked_in(project: Project, home: Module, test: ast.expr) -> set[str] | None:
    """The classes that a function asks for which is called with one object and does nothing else."""
    for where, function in (
        project.links.functions.meant(home, test.func) if isinstance(test, ast.Call) else ()
    ):
        match where.results(function)[0]:
            case [ast.Call(func=ast.Name(id="isinstance"), args=[_, classes])]:
                return set().union(*(_names(project, where, one) for one in classes_of(classes)))
            case [ast.Compare(ops=[ast.In() | ast.Is() | ast.Eq()], left=ast.Call(), comparators=[classes])]:
                each = classes.elts if isinstance(classes, ast.Tuple | ast.List | ast.Set) else [classes]
                return set().union(*(_names(project, where, one) for one in each))
    return None


def _loop_of_function(home: Module, node: ast.Attribute) -> ast.While | None:
    """`while is_wrapped(m): m = m.module` around a place."""
    statement, text = home.statement(node), ast.unparse(node.value)
    loop = home.parent(statement)
    match loop, statement:
        case ast.While(test=ast.Call(args=[subject])), ast.Assign(targets=[target], value=value) if (
            value is node and {ast.unparse(subject), ast.unparse(target)} == {text}
        ):
            return loop
    return None


def _is_asked_for(home: Module, node: ast.Attribute) -> bool:
    """Whether the place is reached only where `hasattr(x, "module")` holds."""
    question = f"hasattr({ast.unparse(node.value)}, {node.attr!r})"
    child: ast.AST = node
    for parent in home.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp | ast.While):
            body = parent.body if isinstance(parent.body, list) else [parent.body]
            test = parent.test
            all_of = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
            if any(child is part for part in body) and any(ast.unparse(t) == question for t in all_of):
                return True
        child = parent
    return False


def _is_given_to_itself(home: Module, node: ast.Attribute) -> bool:
    """Whether a function calls itself with the module inside the wrapper."""
    call, function = home.parent(node), home.function(node)
    if not isinstance(call, ast.Call) or not isinstance(function, ast.FunctionDef):
        return False
    return node in call.args and ast.unparse(call.func).rpartition(".")[2] == function.name


def _names(project: Project, home: Module, one: ast.expr) -> set[str]:
    symbol = project.resolve(home, one)
    return {symbol.name if symbol is not None else "?"}
