"""Calls that give FSDP settings to Accelerate, Transformers, TRL or Lightning, by what the called name means."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from codemods.analysis.index import Module, Symbol
from codemods.analysis.values import (
    CallValue,
    Choice,
    DictValue,
    Named,
    Sequenced,
    Value,
)
from codemods.configuration.rule import Surroundings
from codemods.model import Span
from codemods.project import Project

PLUGIN = "FullyShardedDataParallelPlugin"
LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")
_DEEPEST = 8


def plugin_calls(project: Project) -> Iterator[tuple[Module, ast.Call]]:
    """Every `FullyShardedDataParallelPlugin(...)` of Accelerate."""
    for module, call, symbol in _outside_calls(project):
        if symbol.name.startswith("accelerate.") and symbol.name.endswith(f".{PLUGIN}"):
            yield module, call


def lightning_calls(project: Project) -> Iterator[tuple[Module, ast.Call, Symbol]]:
    """Every `FSDPStrategy(...)` of Lightning or Fabric."""
    for module, call, symbol in _outside_calls(project):
        if is_lightning(symbol) and symbol.name.endswith(".FSDPStrategy"):
            yield module, call, symbol


def is_lightning(symbol: Symbol) -> bool:
    """Whether a name is Lightning's."""
    return symbol.module is None and symbol.name.split(".")[0] in LIGHTNING


def trainer_calls(project: Project) -> Iterator[tuple[Module, ast.Call]]:
    """Every call of `TrainingArguments`, of a class of TRL, or of a project's class derived from one."""
    for module in project.modules.values():
        for call in module.calls():
            symbol = project.resolve(module, call.func)
            if symbol is not None and is_training_arguments(project, symbol):
                yield module, call


def is_training_arguments(project: Project, symbol: Symbol, depth: int = 0) -> bool:
    """Whether a name is a class of a trainer's arguments."""
    if symbol.module is None:
        package, _, _ = symbol.name.partition(".")
        last = symbol.name.rpartition(".")[2]
        return (package == "transformers" and last.endswith("TrainingArguments")) or (
            package == "trl" and last.endswith("Config")
        )
    if not isinstance(symbol.node, ast.ClassDef) or depth > _DEEPEST:
        return False
    bases = [project.resolve(symbol.module, base) for base in symbol.node.bases]
    return any(base is not None and is_training_arguments(project, base, depth + 1) for base in bases)


def surroundings(project: Project) -> Surroundings:
    """What the code says about configuration files."""
    named = set()
    for module, call in trainer_calls(project):
        for keyword in call.keywords:
            if keyword.arg == "fsdp_config" and isinstance(keyword.value, ast.Constant):
                folder = PurePosixPath(module.path).parent
                named |= {str(folder / str(keyword.value.value)), str(keyword.value.value)}
    return Surroundings(frozenset(named))


def held_by_libraries(project: Project) -> dict[str, list[Span]]:
    """Pieces of code whose value goes to one of these libraries: FSDP1's types there are what the library wants."""
    found: dict[str, list[Span]] = {}
    calls = [*plugin_calls(project), *((m, c) for m, c, _ in lightning_calls(project))]
    for module, call in calls:
        for node in (*call.args, *(k.value for k in call.keywords)):
            _hold(project, module, node, found, 0)
    return found


def _hold(project: Project, module: Module, node: ast.expr, found: dict[str, list[Span]], depth: int) -> None:
    found.setdefault(module.path, []).append(module.span(node))
    if depth < _DEEPEST:
        for origin in _origins(project.evaluate(module, node)):
            span = origin[0].span(origin[1])
            if span not in found.get(origin[0].path, []):
                _hold(project, origin[0], origin[1], found, depth + 1)


def _origins(value: Value) -> Iterator[tuple[Module, ast.expr]]:
    match value:
        case Choice():
            for option in value.options:
                yield from _origins(option)
        case CallValue() | Named() | Sequenced() | DictValue():
            yield value.origin.module, value.origin.node
            if isinstance(value, DictValue):
                for origins in value.items.values():
                    yield from ((o.module, o.node) for o in origins)


def _outside_calls(project: Project) -> Iterator[tuple[Module, ast.Call, Symbol]]:
    for module in project.modules.values():
        for call in module.calls():
            symbol = project.resolve(module, call.func)
            if symbol is not None and symbol.module is None:
                yield module, call, symbol
