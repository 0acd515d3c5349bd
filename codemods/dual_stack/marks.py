"""Where the two stacks show: calls that shard with FSDP1 or FSDP2, and calls of functions that do.

A function or class that shards with one stack only passes its mark on to whoever calls or names it; one that
shards with both decides for itself and has none.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from codemods.analysis.module import Module
from codemods.project import Project
from codemods.torch_names import FSDP

FULLY_SHARD = (
    "torch.distributed.fsdp.fully_shard",
    "torch.distributed._composable.fsdp.fully_shard",
    "torch.distributed._composable.fully_shard",
)
_PASSED_ON = 3
"""Calls that may lie between a branch and the sharding."""

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Stack(enum.Enum):
    """What a piece of code is for."""

    FSDP1 = enum.auto()
    FSDP2 = enum.auto()
    NEITHER = enum.auto()


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """One place where a stack shows.

    Attributes:
        around: what stands around it, innermost first, itself included.
        is_certain: coming here is sharding; not so where a function is called that may do so.
    """

    stack: Stack
    around: tuple[ast.AST, ...]
    is_certain: bool = True


@dataclass(slots=True)
class Marks:
    """The marks of a project, by module.

    Attributes:
        definitions: function or class -> what it is for.
        certain: node -> the stacks of the certain marks in it.
    """

    by_module: dict[Module, list[Mark]] = field(default_factory=dict)
    definitions: dict[ast.AST, set[Stack]] = field(default_factory=dict)
    certain: dict[ast.AST, set[Stack]] = field(default_factory=dict)

    def within(self, module: Module, nodes: Iterable[ast.AST]) -> set[Stack]:
        """The stacks that show anywhere in some pieces of a module."""
        wanted = set(nodes)
        marks = self.by_module.get(module, ())
        return {mark.stack for mark in marks if not wanted.isdisjoint(mark.around)}

    def stack_of(self, module: Module, body: Sequence[ast.stmt]) -> Stack:
        """Whose a block is: the one stack that shows in it, if only one does."""
        found = self.within(module, body)
        return next(iter(found)) if len(found) == 1 else Stack.NEITHER

    def is_certain(self, module: Module, body: Sequence[ast.stmt], stack: Stack) -> bool:
        """Whether every way through a block meets a mark of that stack."""
        return any(self._meets(module, statement, stack) for statement in body)

    def is_certain_definition(self, module: Module, node: ast.AST, stack: Stack) -> bool:
        """Whether calling a function shards on every way; of a class, whether one of its methods does."""
        if isinstance(node, ast.ClassDef):
            methods = [s for s in node.body if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef)]
            return any(self.is_certain(module, method.body, stack) for method in methods)
        body = getattr(node, "body", [])
        return self.is_certain(module, body, stack)

    def _meets(self, module: Module, statement: ast.stmt, stack: Stack) -> bool:
        if stack not in self.certain.get(statement, ()):
            return False
        match statement:
            case ast.If():
                return bool(statement.orelse) and all(
                    self.is_certain(module, block, stack) for block in (statement.body, statement.orelse)
                )
            case ast.With() | ast.AsyncWith() | ast.For() | ast.AsyncFor() | ast.Try() | ast.While():
                inside = self.is_certain(module, statement.body, stack)
                return inside or (
                    isinstance(statement, ast.With) and self._in_items(module, statement, stack)
                )
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Match():
                return False
        return stack in self._unconditional(module, [statement])

    def _in_items(self, module: Module, block: ast.With, stack: Stack) -> bool:
        return stack in self._unconditional(module, [item.context_expr for item in block.items])

    def _unconditional(self, module: Module, nodes: Sequence[ast.AST]) -> set[Stack]:
        wanted = set(nodes)
        found = set()
        for mark in self.by_module.get(module, ()):
            if not mark.is_certain or wanted.isdisjoint(mark.around):
                continue
            between = mark.around[: next(i for i, node in enumerate(mark.around) if node in wanted)]
            if not any(isinstance(node, ast.IfExp | ast.Lambda | ast.BoolOp) for node in between):
                found.add(mark.stack)
        return found


def find_marks(project: Project) -> Marks:
    """Every place where a stack shows, first the calls themselves, then whoever calls such functions."""
    marks = Marks()
    for module, node, stack, is_decided in _direct(project):
        _add(marks, module, node, stack, defines=is_decided)
    new = set(marks.definitions)
    for _ in range(_PASSED_ON):
        single = {node for node in new if len(marks.definitions[node]) == 1}
        known = len(marks.definitions)
        new = set(_passed_on(project, marks, single)) if single else set()
        if len(marks.definitions) == known and not new:
            break
    return marks


def _direct(project: Project) -> Iterator[tuple[Module, ast.AST, Stack, bool]]:
    """Module, node, stack, and whether the function around it is for that stack alone."""
    for site in project.wraps:
        yield site.module, site.node, Stack.FSDP1, True
    for use in project.uses(FSDP):
        parent = use.module.parent(use.node)
        if isinstance(parent, ast.Attribute) and isinstance(use.module.parent(parent), ast.Call):
            yield use.module, parent, Stack.FSDP1, not _is_conditional(use.module, parent)
        elif _asserted(use.module, use.node):
            yield use.module, use.node, Stack.FSDP1, False
    for name in FULLY_SHARD:
        for use in project.uses(name):
            yield use.module, use.node, Stack.FSDP2, True


def _is_conditional(module: Module, node: ast.AST) -> bool:
    """Whether a place is reached under a condition of its function."""
    for parent in module.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp | ast.Match):
            return True
        if isinstance(parent, _DEFINITIONS):
            return False
    return False


def _asserted(module: Module, node: ast.AST) -> bool:
    """`assert isinstance(model, FSDP)`: from here on there is no other way."""
    call = module.parent(node)
    return (
        isinstance(call, ast.Call)
        and getattr(call.func, "id", "") == "isinstance"
        and isinstance(module.parent(call), ast.Assert)
    )


def _add(
    marks: Marks,
    module: Module,
    node: ast.AST,
    stack: Stack,
    *,
    defines: bool = True,
    is_certain: bool = True,
) -> set[ast.AST]:
    """Add a mark, and tell which definitions it gives a stack to that they had not."""
    around = (node, *module.ancestors(node))
    marks.by_module.setdefault(module, []).append(Mark(stack, around, is_certain))
    for parent in around if is_certain else ():
        marks.certain.setdefault(parent, set()).add(stack)
    told: set[ast.AST] = set()
    for parent in around if defines else ():
        if isinstance(parent, _DEFINITIONS):
            stacks = marks.definitions.setdefault(parent, set())
            if stack not in stacks:
                stacks.add(stack)
                told.add(parent)
            if isinstance(parent, ast.ClassDef):
                break
    return told


def _passed_on(project: Project, marks: Marks, single: set[ast.AST]) -> Iterator[ast.AST]:
    names = {getattr(node, "name", "") for node in single}
    for module in list(project.modules.values()):
        for node in module.named(*names):
            if not isinstance(node.ctx, ast.Load):
                continue
            home, found = _definition(project, module, node)
            if found is None or found not in single or found in (node, *module.ancestors(node)):
                continue
            (stack,) = marks.definitions[found] if len(marks.definitions[found]) == 1 else (None,)
            if stack is None:
                continue
            certain = marks.is_certain_definition(home, found, stack)
            yield from _add(marks, module, node, stack, is_certain=certain)


def _definition(
    project: Project, module: Module, node: ast.Name | ast.Attribute
) -> tuple[Module, ast.AST | None]:
    """The function or class that a name means, and its module; `self.method` by the class around it."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        owner = module.class_of(node)
        methods = owner.body if owner is not None else []
        found = (m for m in methods if isinstance(m, _DEFINITIONS) and m.name == node.attr)
        return module, next(found, None)
    symbol = project.resolve(module, node)
    if symbol is None or symbol.module is None or not isinstance(symbol.node, _DEFINITIONS):
        return module, None
    return symbol.module, symbol.node
