"""All places of a project where the stacks part, each once."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.analysis.module import Module
from codemods.dual_stack.arms import chains
from codemods.dual_stack.chains import chain_spot
from codemods.dual_stack.choices import Choices, find_choices
from codemods.dual_stack.expressions import (
    condition_spot,
    conditional_spot,
    match_spot,
    table_spot,
    union_spots,
)
from codemods.dual_stack.gates import gate_spots
from codemods.dual_stack.marks import Marks, Stack, find_marks
from codemods.dual_stack.settings import asks_by_text
from codemods.dual_stack.spans import terminates
from codemods.dual_stack.spot import Refused, Spot
from codemods.dual_stack.truth import Truth
from codemods.project import Project
from codemods.torch_names import FSDP

_NO_REGISTRIES = frozenset({"absl", "hypothesis", "mock", "parameterized", "pytest", "torch"})
"""Libraries whose decorators take texts that are no names of what they decorate."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(slots=True)
class View:
    """A project with what is known about its two stacks."""

    project: Project
    marks: Marks
    truth: Truth

    @property
    def choices(self) -> Choices:
        return self.truth.choices


def view(project: Project, known: Choices | None = None) -> View:
    """Look at a project.

    Args:
        known: choices learned earlier, from branches that have gone since.
    """
    marks = find_marks(project)
    choices = find_choices(project, marks)
    if known is not None:
        choices = choices.joined(known)
    return View(project, marks, Truth(project, choices))


def shown_spots(seen: View) -> Iterator[Spot]:
    """The places where both stacks show: few, and found without reading every condition."""
    for module, marks in seen.marks.by_module.items():
        nodes = list(dict.fromkeys(node for mark in marks for node in mark.around))
        yield from (spot for spot in _around_marks(seen, module, nodes) if spot.is_pair)


def all_spots(seen: View) -> Iterator[Spot]:
    """Every place where something of FSDP1's is asked for or done."""
    for module in list(seen.project.modules.values()):
        marks = seen.marks.by_module.get(module, [])
        nodes = dict.fromkeys(node for mark in marks for node in mark.around)
        conditions: list[ast.expr] = []
        for condition in _known_conditions(seen, module):
            parent = module.parent(condition)
            if isinstance(parent, ast.If | ast.IfExp) and parent.test is condition:
                nodes[parent] = None
            else:
                conditions.append(condition)
        nodes.update(dict.fromkeys(n for n in module.nodes(ast.Match) if _matches_choice(seen, module, n)))
        yield from _around_marks(seen, module, list(nodes))
        for condition in conditions:
            spot = condition_spot(seen.truth, module, condition)
            if spot is not None:
                yield spot
        yield from union_spots(seen.project, module)
        yield from gate_spots(seen.project, module)
        yield from _asked_by_text(seen, module)
        yield from _registered(seen, module)


def _around_marks(seen: View, module: Module, nodes: list[ast.AST]) -> Iterator[Spot]:
    nodes = [*nodes, *_leaving_before(module, nodes)]
    found = [chain_spot(seen.truth, seen.marks, chain) for chain in chains(module, nodes)]
    for node in nodes:
        match node:
            case ast.IfExp():
                found.append(conditional_spot(seen.truth, seen.marks, module, node))
            case ast.Match():
                found.append(match_spot(seen.truth, seen.marks, module, node))
            case ast.Dict():
                found.append(table_spot(seen.marks, module, node))
    yield from (spot for spot in found if spot is not None)


def _leaving_before(module: Module, nodes: list[ast.AST]) -> Iterator[ast.If]:
    """`if ...: return` above a statement, in its block."""
    for node in nodes:
        if isinstance(node, ast.stmt):
            block = module.block(node)
            above = block[: block.index(node)]
            yield from (s for s in above if isinstance(s, ast.If) and not s.orelse and terminates(s.body))


def _matches_choice(seen: View, module: Module, node: ast.AST) -> bool:
    if not isinstance(node, ast.Match):
        return False
    patterns = [case.pattern for case in node.cases]
    classes = [p.cls for p in patterns if isinstance(p, ast.MatchClass)]
    symbols = [seen.project.resolve(module, cls) for cls in classes]
    return bool(seen.choices.of(node.subject)) or any(s is not None and s.name == FSDP for s in symbols)


def _known_conditions(seen: View, module: Module) -> Iterator[ast.expr]:
    """The outermost conditions that are known or change."""
    done: set[ast.expr] = set()
    text = module.text.lower()
    if "fsdp" not in text and not any(name in module.text for name in seen.choices.pairs):
        return
    for node in (*module.nodes(ast.Compare), *module.nodes(ast.Call)):
        assert isinstance(node, ast.Compare | ast.Call)
        if not seen.truth.fold(module, node).is_known:
            continue
        outer: ast.expr = node
        while isinstance(parent := module.parent(outer), ast.BoolOp | ast.UnaryOp):
            if isinstance(parent, ast.UnaryOp) and not isinstance(parent.op, ast.Not):
                break
            outer = parent
        while not seen.truth.fold(module, outer).is_known:  # an operand whose value is needed
            outer = next(p for p in _path(module, node, outer) if seen.truth.fold(module, p).is_known)
        if outer not in done:
            done.add(outer)
            yield outer


def _path(module: Module, inner: ast.expr, outer: ast.expr) -> list[ast.expr]:
    """From just below an outer expression down to an inner one."""
    way: list[ast.expr] = [inner]
    for parent in module.ancestors(inner):
        if parent is outer:
            break
        assert isinstance(parent, ast.expr)
        way.append(parent)
    return way[::-1]


def _asked_by_text(seen: View, module: Module) -> Iterator[Spot]:
    for node in (*module.nodes(ast.If), *module.nodes(ast.IfExp)) if seen.choices.pairs else ():
        assert isinstance(node, ast.If | ast.IfExp)
        if asks_by_text(node.test, seen.choices):
            reason = "it asks for a part of the setting's text, which FSDP1's value does not have"
            yield Spot(module, node.test, Refused(reason))


def _registered(seen: View, module: Module) -> Iterator[Spot]:
    """FSDP1's class or function under a name in a registry: whoever asks for that name would get nothing."""
    for definition, stacks in seen.marks.definitions.items():
        if stacks != {Stack.FSDP1} or not isinstance(definition, _DEFINITIONS):
            continue
        if not any(definition is node for node in module.nodes(type(definition))):
            continue
        for decorator in definition.decorator_list:
            if _registers(seen, module, decorator) and _has_sibling(seen, decorator):
                yield Spot(module, decorator, Refused("a registry may be asked for it by its name"))


def _registers(seen: View, module: Module, decorator: ast.expr) -> bool:
    """Whether a decorator is given a name, and is not one of Python's, of torch's or of tests, such as
    `@patch("module.FSDP")`, by whose text nobody asks for what it decorates."""
    if not isinstance(decorator, ast.Call):
        return False
    symbol = seen.project.resolve(module, decorator.func)
    library = symbol.name.partition(".")[0] if symbol is not None and symbol.module is None else ""
    if library in sys.stdlib_module_names or library in _NO_REGISTRIES:
        return False
    given = (*decorator.args, *(k.value for k in decorator.keywords))
    return any(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in given)


def _has_sibling(seen: View, decorator: ast.expr) -> bool:
    """Whether the same registry holds something of FSDP2's."""
    assert isinstance(decorator, ast.Call)
    wanted = ast.unparse(decorator.func)
    return any(
        isinstance(other, ast.Call) and ast.unparse(other.func) == wanted
        for definition, stacks in seen.marks.definitions.items()
        if stacks == {Stack.FSDP2} and isinstance(definition, _DEFINITIONS)
        for other in definition.decorator_list
    )
