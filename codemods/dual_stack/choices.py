"""What chooses between FSDP1 and FSDP2: the values that a setting has for either.

Learned from the project: where `x.strategy == "fsdp"` leads to a branch that wraps with FSDP1 and
`== "fsdp2"` to one that calls `fully_shard`, the setting `strategy` and whatever it is handed on to
(attributes, parameters) has this pair of values. `fsdp_version` with 1 and 2 is known beforehand.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from codemods.analysis.arguments import argument_for, is_bound_call
from codemods.analysis.module import Module
from codemods.dual_stack.marks import Marks, Stack
from codemods.project import Project

_VERSION = re.compile(r"_?fsdp_?(version|ver|v)$", re.IGNORECASE)
_PLUGIN = "FullyShardedDataParallelPlugin"
_LONGEST_WAY = 4


@dataclass(frozen=True, slots=True)
class Pair:
    """A setting's value for FSDP1 and its value for FSDP2.

    Attributes:
        first, second: keys of constants (`constant_key`).
        is_outside: the setting is a library's (Accelerate's plugin), which goes on making FSDP1 models.
    """

    first: str
    second: str
    is_outside: bool = False


@dataclass(slots=True)
class Choices:
    """Which names hold a choice of stack, and the values that they can have.

    Attributes:
        pairs: name of the setting (the last part of `cfg.actor.strategy`) -> its values.
        version: the values of `fsdp_version`.
        own: the names by which branches of the two stacks are chosen themselves.
    """

    pairs: dict[str, set[Pair]] = field(default_factory=dict)
    version: Pair | None = None
    own: frozenset[str] = frozenset()

    def of(self, subject: ast.expr) -> list[Pair]:
        """The pairs of values that an expression can choose by."""
        name = setting_name(subject)
        if name is None:
            return []
        found = sorted(self.pairs.get(name, ()), key=lambda pair: (pair.first, pair.second))
        if self.version is not None and _VERSION.match(name):
            found.append(self.version)
        return found

    def joined(self, other: Choices) -> Choices:
        """What both know."""
        pairs = {name: set(found) for name, found in self.pairs.items()}
        for name, found in other.pairs.items():
            pairs.setdefault(name, set()).update(found)
        return Choices(pairs, self.version, self.own | other.own)


def setting_name(node: ast.expr) -> str | None:
    """The name of a setting: `strategy` of `cfg.actor.strategy`, `cfg["strategy"]`, `cfg.get("strategy")`."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
            return name
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            return name
        case ast.Call(func=ast.Attribute(attr="lower" | "strip", value=inner), args=[]):
            return setting_name(inner)
    return None


def constant_key(node: ast.expr) -> str | None:
    """A name for a constant: a string's or number's value, the last two names of an enumeration's member."""
    match node:
        case ast.Constant(value=str() | int()) if not isinstance(node.value, bool):
            return repr(node.value)
        case ast.Attribute(value=ast.Name(id=owner)) if owner[:1].isupper():
            return f"{owner}.{node.attr}"
        case ast.Attribute(value=ast.Attribute(attr=owner)) if owner[:1].isupper():
            return f"{owner}.{node.attr}"
    return None


def find_choices(project: Project, marks: Marks) -> Choices:
    """The choices of a project."""
    votes: dict[str, dict[str, set[Stack]]] = {}
    for name, key, stack in _votes(project, marks):
        if _VERSION.match(name):
            continue  # known beforehand, and perhaps not the project's to decide
        votes.setdefault(name, {}).setdefault(key, set()).add(stack)
    pairs: dict[str, set[Pair]] = {}
    for name, stacks in votes.items():
        firsts = [key for key, found in stacks.items() if found == {Stack.FSDP1}]
        seconds = [key for key, found in stacks.items() if found == {Stack.FSDP2}]
        if len(seconds) == 1:
            pairs.update({name: {Pair(first, seconds[0]) for first in firsts}} if firsts else {})
    version = Pair("1", "2", is_outside=_is_set_outside(project))
    own = frozenset(pairs)
    return Choices(_telling(project, own, _handed_on(project, pairs)), version, own)


def _telling(project: Project, own: frozenset[str], pairs: dict[str, set[Pair]]) -> dict[str, set[Pair]]:
    """The names under which FSDP2's value is asked for; under others `"fsdp"` may mean either stack."""
    asked: set[tuple[str, str]] = set()
    for module in list(project.modules.values()) if pairs else ():
        for node in module.nodes(ast.Compare):
            assert isinstance(node, ast.Compare)
            for subject in (node.left, *node.comparators):
                name = setting_name(subject)
                if name in pairs:
                    keys = (constant_key(part) for part in ast.walk(node) if isinstance(part, ast.expr))
                    asked.update((name, key) for key in keys if key is not None)
    return {
        name: kept
        for name, found in pairs.items()
        if (kept := {pair for pair in found if name in own or (name, pair.second) in asked})
    }


def _is_set_outside(project: Project) -> bool:
    texts = [module.text for module in list(project.modules.values())]
    return any("fsdp_plugin" in text for text in texts) and not any(
        f"class {_PLUGIN}" in text for text in texts
    )


def _votes(project: Project, marks: Marks) -> Iterator[tuple[str, str, Stack]]:
    """(setting, value, the stack that this value leads to), from every branch in which a stack shows."""
    for module, found in marks.by_module.items():
        around = {node for mark in found for node in mark.around}
        for node in around:
            match node:
                case ast.If():
                    stack = marks.stack_of(module, node.body)
                    yield from _vote(node.test, stack)
                case ast.IfExp():
                    stacks = marks.within(module, [node.body])
                    if len(stacks) == 1:
                        yield from _vote(node.test, next(iter(stacks)))
                case ast.Match():
                    name = setting_name(node.subject)
                    for case in node.cases if name is not None else ():
                        key = _pattern_key(case.pattern)
                        stack = marks.stack_of(module, case.body)
                        if name is not None and key is not None and stack is not Stack.NEITHER:
                            yield name, key, stack


def _pattern_key(pattern: ast.pattern) -> str | None:
    return constant_key(pattern.value) if isinstance(pattern, ast.MatchValue) else None


def _vote(test: ast.expr, stack: Stack) -> Iterator[tuple[str, str, Stack]]:
    if stack is Stack.NEITHER:
        return
    operands = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    for operand in operands:
        if isinstance(operand, ast.Compare) and isinstance(operand.ops[0], ast.Eq | ast.Is):
            found = setting_and_value(operand)
            if found is not None:
                yield *found, stack


def setting_and_value(compare: ast.Compare) -> tuple[str, str] | None:
    """The setting and the constant of `cfg.strategy == "fsdp"`, either way round."""
    if len(compare.ops) != 1:
        return None
    for subject, value in ((compare.left, compare.comparators[0]), (compare.comparators[0], compare.left)):
        name, key = setting_name(subject), constant_key(value)
        if name is not None and key is not None and constant_key(subject) is None:
            return name, key
    return None


def _handed_on(project: Project, pairs: dict[str, set[Pair]]) -> dict[str, set[Pair]]:
    """The same pairs for the names that a setting comes from or goes to."""
    if not pairs:
        return pairs
    links = set(_same_value(project))
    for _ in range(_LONGEST_WAY):
        before = {name: set(found) for name, found in pairs.items()}
        for one, other in links:
            for source, target in ((one, other), (other, one)):
                if source in before:
                    pairs.setdefault(target, set()).update(before[source])
        if pairs == before:
            break
    return pairs


def _same_value(project: Project) -> Iterator[tuple[str, str]]:
    """Pairs of names of which one is assigned, or passed as, the other."""
    for module in list(project.modules.values()):
        for node in (*module.nodes(ast.Assign), *module.nodes(ast.AnnAssign)):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            value = setting_name(node.value) if node.value is not None else None
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets if value is not None else ():
                name = setting_name(target)
                if name is not None and value is not None and name != value:
                    yield value, name
        for call in module.calls():
            for keyword in call.keywords:
                name = setting_name(keyword.value) if keyword.arg else None
                if name is not None and keyword.arg is not None and name != keyword.arg:
                    yield name, keyword.arg
    for definition, calls in _callers(project).items():
        function, bound = _called(definition), isinstance(definition, ast.ClassDef)
        for parameter in (*function.args.posonlyargs, *function.args.args) if function is not None else ():
            for module, call in calls:
                assert function is not None
                symbol = project.resolve(module, call.func)
                home = symbol.module if symbol is not None and symbol.module is not None else module
                is_bound = bound or is_bound_call(project.index, home, function, module, call)
                given = argument_for(function, parameter.arg, call, bound=is_bound)
                name = setting_name(given) if isinstance(given, ast.expr) else None
                if name is not None and name != parameter.arg:
                    yield name, parameter.arg


def _callers(project: Project) -> dict[ast.AST, list[tuple[Module, ast.Call]]]:
    """Definition -> calls of it by name."""
    found: dict[ast.AST, list[tuple[Module, ast.Call]]] = {}
    for module in list(project.modules.values()):
        for call, symbol in project.meanings.calls(module):
            if symbol.module is not None and symbol.node is not None:
                found.setdefault(symbol.node, []).append((module, call))
    return found


def _called(definition: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function whose parameters a call of a definition fills: a class's `__init__`."""
    if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        return definition
    methods = definition.body if isinstance(definition, ast.ClassDef) else []
    return next((m for m in methods if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
