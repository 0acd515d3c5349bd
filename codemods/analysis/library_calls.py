"""Calls that give FSDP settings to Accelerate, Transformers, TRL or Lightning, by what the called name
means."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.analysis.index import Symbol
from codemods.analysis.library_models import names_arguments
from codemods.analysis.module import Module, last_name
from codemods.analysis.values import (
    CallValue,
    Choice,
    DictValue,
    Named,
    Sequenced,
    Value,
)
from codemods.configuration.named import paths_named, shared_settings
from codemods.configuration.rule import Surroundings
from codemods.model import Span
from codemods.project import Project

PLUGIN = "FullyShardedDataParallelPlugin"
LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")
_DEEPEST = 8
_MOST = 100


def plugin_calls(project: Project) -> Iterator[tuple[Module, ast.Call]]:
    """Every `FullyShardedDataParallelPlugin(...)` of Accelerate."""
    for module, call, symbol in _outside_calls(project, PLUGIN):
        if symbol.name.startswith("accelerate.") and symbol.name.endswith(f".{PLUGIN}"):
            yield module, call


def lightning_calls(project: Project) -> Iterator[tuple[Module, ast.Call, Symbol]]:
    """Every `FSDPStrategy(...)` of Lightning or Fabric."""
    for module, call, symbol in _outside_calls(project, "FSDPStrategy"):
        if is_lightning(symbol) and symbol.name.endswith(".FSDPStrategy"):
            yield module, call, symbol


def is_lightning(symbol: Symbol) -> bool:
    """Whether a name is Lightning's."""
    return symbol.module is None and symbol.name.split(".")[0] in LIGHTNING


def trainer_calls(project: Project) -> Iterator[tuple[Module, ast.Call]]:
    """Every call of `TrainingArguments`, of a class of TRL, or of a project's class derived from one, that
    says something about FSDP."""
    for module in project.looked_at:
        for call in module.calls() if "fsdp" in module.text else ():
            if not any(keyword.arg and keyword.arg.startswith("fsdp") for keyword in call.keywords):
                continue
            symbol = project.resolve(module, call.func)
            if symbol is not None and is_training_arguments(project, symbol):
                yield module, call


def is_training_arguments(project: Project, symbol: Symbol, depth: int = 0) -> bool:
    """Whether a name is a class of a trainer's arguments."""
    if symbol.module is None:
        return names_arguments(symbol.name)
    if not isinstance(symbol.node, ast.ClassDef) or depth > _DEEPEST:
        return False
    bases = [project.resolve(symbol.module, base) for base in symbol.node.bases]
    return any(base is not None and is_training_arguments(project, base, depth + 1) for base in bases)


def values_called_fsdp(project: Project, module: Module) -> Iterator[ast.expr]:
    """Values given to something called `fsdp`: a dictionary's key, an attribute, a field, another call's
    argument."""
    for node in module.nodes(ast.Dict):
        assert isinstance(node, ast.Dict)
        pairs = zip(node.keys, node.values, strict=True)
        yield from (value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "fsdp")
    for kind in (ast.Assign, ast.AnnAssign):
        for statement in module.nodes(kind):
            assert isinstance(statement, ast.Assign | ast.AnnAssign)
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = [last_name(t) for t in targets]
            if "fsdp" in names and statement.value is not None:
                yield _default(statement.value)
    for call in module.calls():
        told = [k.value for k in call.keywords if k.arg == "fsdp"]
        symbol = project.resolve(module, call.func) if told else None
        if symbol is None or not is_training_arguments(project, symbol):
            yield from told


def _default(value: ast.expr) -> ast.expr:
    """What `field(default=...)` says; other values as they are."""
    if isinstance(value, ast.Call):
        return next((k.value for k in value.keywords if k.arg == "default"), value)
    return value


def surroundings(project: Project) -> Surroundings:
    """What the code says about configuration files."""
    named: set[str] = set()
    for module, call in trainer_calls(project):
        for keyword in call.keywords:
            if keyword.arg == "fsdp_config" and isinstance(keyword.value, ast.Constant):
                named |= paths_named(module.path, str(keyword.value.value))
    return Surroundings(frozenset(named))


def settings_of_call(module: Module, call: ast.Call) -> frozenset[str]:
    """What the file that a call names as `fsdp_config` shares with all that name it."""
    config = next((keyword.value for keyword in call.keywords if keyword.arg == "fsdp_config"), None)
    return _shared(module, config)


def beside(module: Module, value: ast.expr) -> dict[str, ast.expr]:
    """What stands in a dictionary beside one of its values, by its keys."""
    around = module.parent(value)
    pairs = zip(around.keys, around.values, strict=True) if isinstance(around, ast.Dict) else ()
    return {str(key.value): one for key, one in pairs if isinstance(key, ast.Constant)}


def settings_beside(module: Module, value: ast.expr) -> frozenset[str]:
    """The same for a setting in a dictionary or another call."""
    parent = module.parent(value)
    call = module.parent(parent) if isinstance(parent, ast.keyword) else None
    if isinstance(call, ast.Call):
        return settings_of_call(module, call)
    return _shared(module, beside(module, value).get("fsdp_config"))


def _shared(module: Module, config: ast.expr | None) -> frozenset[str]:
    if config is None or isinstance(config, ast.Dict):
        return frozenset()
    name = config.value if isinstance(config, ast.Constant) and isinstance(config.value, str) else None
    return shared_settings(module.path, name, module.code(config), module.text)


@dataclass(frozen=True, slots=True)
class Held:
    """A piece of code whose value goes to a library: FSDP1's types there are what the library wants.

    Attributes:
        inside: written in the call itself.
    """

    span: Span
    library: str
    inside: bool


def held_by_libraries(project: Project) -> dict[str, list[Held]]:
    """What is handed to Accelerate's plugin and Lightning's strategy, by file."""
    found: dict[str, list[Held]] = {}
    calls = [(m, c, PLUGIN) for m, c in plugin_calls(project)]
    calls += [(m, c, "FSDPStrategy") for m, c, _ in lightning_calls(project)]
    for module, call, library in calls:
        for node in (*call.args, *(k.value for k in call.keywords)):
            found.setdefault(module.path, []).append(Held(module.span(node), library, inside=True))
            for origin in _followed(project, module, node):
                held = Held(origin[0].span(origin[1]), library, inside=False)
                if not any(h.span.holds(held.span) for h in found.get(origin[0].path, ())):
                    found.setdefault(origin[0].path, []).append(held)
    return found


def _followed(project: Project, module: Module, node: ast.expr) -> Iterator[tuple[Module, ast.expr]]:
    """Everywhere that an argument's value, or a part of it, is written."""
    waiting = [(module, node)]
    seen: set[ast.expr] = set()
    while waiting:
        at, current = waiting.pop()
        if current in seen or len(seen) > _MOST:
            continue
        seen.add(current)
        yield at, current
        waiting += list(_origins(project.evaluate(at, current)))


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


def _outside_calls(project: Project, word: str) -> Iterator[tuple[Module, ast.Call, Symbol]]:
    """Calls of names from outside the project, in modules where a word stands."""
    for module in project.looked_at:
        for call in module.calls() if word in module.text else ():
            symbol = project.outside(module, call.func)
            if symbol is not None:
                yield module, call, symbol
