"""Models that Accelerate or Transformers shard, told by settings in the same file: no wrap call stands there.

Source: `accelerate/accelerator.py` (`prepare`), `transformers/trainer.py` (`_wrap_model`, `model_wrapped`).
Their FSDP2 shards the same models in place, so that what is done with them meets DTensors.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from codemods.analysis.classes import Classes
from codemods.analysis.flow import reaching
from codemods.analysis.meanings import Meanings
from codemods.analysis.module import Module, last_name
from codemods.analysis.spoken_names import says_optimizer

_MODELS = ("model", "net", "policy", "transformer", "actor", "critic", "student", "teacher", "module")
_OTHERS = ("load", "data", "optim", "sched", "sampler")
_OTHER_PLUGINS = ("deepspeed_plugin", "deepspeed_plugins", "megatron_lm_plugin")


@dataclass(frozen=True, slots=True)
class LibraryModel:
    """What an expression holds.

    Attributes:
        module: where it stands.
        positions: where it holds a model of a library; None: it is one itself.
        optimizers: the same for optimizers of such models.
        is_certain: not where the program decides whether FSDP is used at all.
    """

    module: Module
    positions: tuple[int | None, ...]
    is_certain: bool = True
    optimizers: tuple[int | None, ...] = ()


def library_models(
    classes: Classes,
    meanings: Meanings,
    modules: Iterable[Module],
    launched: frozenset[str] = frozenset(),
) -> dict[ast.expr, LibraryModel]:
    """What Accelerate and Transformers give back sharded.

    Args:
        launched: files of programs for which settings elsewhere may choose FSDP.
    """
    found: dict[ast.expr, LibraryModel] = {}
    for module in modules:
        is_launched = module.path in launched
        if "fsdp_plugin" in module.text or (is_launched and "Accelerator" in module.text):
            found.update(_prepared(meanings, module, is_launched=is_launched))
        if "Trainer" in module.text and (is_launched or "fsdp=" in module.text):
            found.update(_trained(classes, meanings, module, is_launched=is_launched))
    return found


def _prepared(
    meanings: Meanings, module: Module, *, is_launched: bool
) -> Iterator[tuple[ast.expr, LibraryModel]]:
    """`accelerator.prepare(model, optimizer)` in a file whose Accelerator has a plugin for FSDP, or may
    get one from settings elsewhere."""
    made = [
        call
        for call, symbol in meanings.calls(module)
        if symbol.module is None
        and symbol.name.startswith("accelerate.")
        and symbol.name.endswith(".Accelerator")
    ]
    plugins = [next((k.value for k in call.keywords if k.arg == "fsdp_plugin"), None) for call in made]
    said = [one for plugin in plugins for one in _made(module, plugin)]
    if not any(said) and (not is_launched or (made and all(_is_of_other(module, call) for call in made))):
        return
    is_certain = bool(said) and all(said)
    names = ("prepare", "prepare_model", "prepare_optimizer")
    for call in (call for name in names for call in module.called(name)):
        if not isinstance(call.func, ast.Attribute) or any(isinstance(a, ast.Starred) for a in call.args):
            continue
        if not any(said) and "accelerator" not in ast.unparse(call.func.value).lower():
            continue
        if len(call.args) == 1:
            if not any(word in ast.unparse(call.args[0]).lower() for word in _OTHERS):
                yield call, LibraryModel(module, (None,), is_certain)
            elif says_optimizer(call.args[0]):
                yield call, LibraryModel(module, (), is_certain, (None,))
            continue
        places = tuple(i for i, given in enumerate(call.args) if _says_model(given))
        optimizers = tuple(i for i, given in enumerate(call.args) if says_optimizer(given))
        if places or optimizers:
            yield call, LibraryModel(module, places, is_certain, optimizers)


def _is_of_other(module: Module, accelerator: ast.Call) -> bool:
    """Whether an Accelerator is told to use something else, whatever the settings elsewhere say."""
    return any(
        isinstance(k.value, ast.Constant) and k.value.value is True
        if k.arg == "cpu"
        else k.arg in _OTHER_PLUGINS and all(_made(module, k.value))
        for k in accelerator.keywords
    )


def _made(module: Module, plugin: ast.expr | None) -> list[bool]:
    """Whether an argument is a plugin, for each of the values that it can have."""
    found = module.scope_of(plugin).lookup(plugin.id) if isinstance(plugin, ast.Name) else None
    if found is not None and plugin is not None:
        values = [binding.value for binding in reaching(module, *found, plugin)]
    else:
        values = [plugin]
    either = [part for v in values for part in ((v.body, v.orelse) if isinstance(v, ast.IfExp) else (v,))]
    return [isinstance(value, ast.Call) for value in either]


def _says_model(node: ast.expr) -> bool:
    name = last_name(node)
    return name.lower().endswith(_MODELS)


def _trained(
    classes: Classes, meanings: Meanings, module: Module, *, is_launched: bool
) -> Iterator[tuple[ast.expr, LibraryModel]]:
    """`trainer.model` behind `trainer.train()`, and `trainer.model_wrapped`, in a file whose trainers are all
    told to use FSDP, or may be told so elsewhere."""
    calls = [
        (call, name)
        for call, symbol in meanings.calls(module)
        for name in _outside_names(classes, symbol.module, symbol.node, symbol.name)
        if name.split(".")[0] in ("transformers", "trl")
    ]
    told = [_tells_fsdp(call) for call, name in calls if names_arguments(name)]
    trainers = [call for call, name in calls if name.endswith("Trainer")]
    is_certain = bool(told) and all(told)
    if not is_certain and not is_launched:
        return
    for trainer in trainers:
        statement = module.statement(trainer)
        targets = (
            statement.targets if isinstance(statement, ast.Assign) and statement.value is trainer else []
        )
        names = {ast.unparse(target) for target in targets}
        started = [
            module.span(call).end
            for call in module.called("train")
            if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in names
        ]
        for read in module.attributes("model", "model_wrapped") if started else ():
            is_behind = module.span(read).start > min(started)
            if is_behind and isinstance(read.ctx, ast.Load) and ast.unparse(read.value) in names:
                yield read, LibraryModel(module, (None,), is_certain)


def names_arguments(name: str) -> bool:
    """Whether a canonical name is that of a class of a trainer's arguments."""
    package, last = name.partition(".")[0], name.rpartition(".")[2]
    is_trl = package == "trl" and last.endswith("Config")
    return is_trl or (package == "transformers" and last.endswith("TrainingArguments"))


def _tells_fsdp(call: ast.Call) -> bool:
    value = next((k.value for k in call.keywords if k.arg == "fsdp"), None)
    return isinstance(value, ast.Constant) and isinstance(value.value, str | bool) and bool(value.value)


def _outside_names(classes: Classes, home: Module | None, node: ast.AST | None, name: str) -> Iterator[str]:
    """The name of what is called; of a class of the project the names of the libraries' classes it derives
    from."""
    if home is None:
        yield name
    elif isinstance(node, ast.ClassDef):
        yield from classes.outside_bases(node, home)
