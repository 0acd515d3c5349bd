"""Lightning's `FSDPStrategy` as `ModelParallelStrategy`, the sharding written into the `LightningModule`.

Source: lightning 2.6 `pytorch/strategies/fsdp.py`, `pytorch/strategies/model_parallel.py`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.analysis.module import Module
from codemods.analysis.values import CallValue, Choice, Sequenced, Value, options
from codemods.configuration.settings import strategy_named
from codemods.editing.code import code, insert_after, replace
from codemods.model import Code, Edit
from codemods.project import Project

_STEPS = ("training_step", "validation_step", "test_step", "predict_step")
_LOOPS = ("fit", "validate", "test", "predict")
_PASSED_ON = ("process_group_backend", "timeout")
_WITHOUT_EFFECT = ("use_orig_params", "limit_all_gathers", "forward_prefetch", "backward_prefetch")
_POLICIES = {
    "torch.distributed.fsdp.wrap.ModuleWrapPolicy": "module_classes",
    "torch.distributed.fsdp.wrap.transformer_auto_wrap_policy": "transformer_layer_cls",
}
_SINGLE = (None, "32", "32-true", 32)


class NotProvable(Exception):
    """Why the strategy cannot be translated."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """What `FSDPStrategy(...)` asked for.

    Attributes:
        classes: of the modules that become units.
    """

    classes: list[ast.expr]
    home: Module
    keeps_unsharded: bool


def trainer_around(module: Module, strategy: ast.Call) -> ast.Call | None:
    """The `Trainer(...)` that a strategy is given to, on the spot or through a variable of its own."""
    keyword = module.parent(strategy)
    if isinstance(keyword, ast.keyword) and keyword.arg == "strategy":
        call = module.parent(keyword)
        return call if isinstance(call, ast.Call) else None
    if not isinstance(keyword, ast.Assign) or not isinstance(keyword.targets[0], ast.Name):
        return None
    name = keyword.targets[0].id
    uses = [n for n in module.nodes(ast.Name) if isinstance(n, ast.Name) and n.id == name]
    if len(uses) != 2 or len(keyword.targets) != 1:
        return None
    given = next(module.parent(use) for use in uses if isinstance(use.ctx, ast.Load))
    call = module.parent(given) if isinstance(given, ast.keyword) and given.arg == "strategy" else None
    return call if isinstance(call, ast.Call) else None


def translate(project: Project, module: Module, strategy: ast.expr, trainer: ast.Call) -> list[Edit]:
    """The edits that move a program to FSDP2.

    Args:
        strategy: `FSDPStrategy(...)`, or the string `"fsdp"`.

    Raises:
        NotProvable: something of it cannot be seen, or has no counterpart.
    """
    given: dict[str, ast.expr] = {}
    if isinstance(strategy, ast.Call):
        given = {k.arg: k.value for k in strategy.keywords if k.arg is not None}
        if strategy.args or len(given) != len(strategy.keywords):
            raise NotProvable("its arguments are not all named here")
    layout = _layout(project, module, given)
    size = _world_size(module, trainer)
    edits = [_strategy_edit(module, strategy, given, size)]
    classes = set(_modules_trained(project, module, trainer))
    if not classes:
        raise NotProvable("which LightningModule it trains was not found")
    for home, node in classes:
        edit = _configured(project, home, node, layout)
        if edit is not None:
            edits.append(edit)
    return edits


def _layout(project: Project, module: Module, given: dict[str, ast.expr]) -> _Layout:
    known = {"auto_wrap_policy", "sharding_strategy", "state_dict_type", *_PASSED_ON, *_WITHOUT_EFFECT}
    for name, value in given.items():
        is_off = isinstance(value, ast.Constant) and value.value in (None, False)
        if name not in known and not is_off:
            raise NotProvable(f"`{name}` has to be settled by hand")
    said = given.get("sharding_strategy")
    text = ast.unparse(said).strip("'\"") if said is not None else "FULL_SHARD"
    strategy = strategy_named(text)
    if strategy not in ("FULL_SHARD", "SHARD_GRAD_OP"):
        raise NotProvable(f"`{text}` has no place in it")
    policy = given.get("auto_wrap_policy")
    classes, home = (_classes(project, module, policy)) if policy is not None else ([], module)
    return _Layout(classes, home, strategy == "SHARD_GRAD_OP")


def _classes(project: Project, module: Module, policy: ast.expr) -> tuple[list[ast.expr], Module]:
    value: Value = project.evaluate(module, policy)
    if isinstance(value, CallValue):
        function = value.function.name
        arguments = list(value.arguments)
        if function == "functools.partial" and arguments:
            symbol = project.resolve(value.origin.module, arguments.pop(0))
            function = symbol.name if symbol is not None else ""
        name = _POLICIES.get(function)
        inner = value.keywords.get(name, arguments[0] if arguments else None) if name is not None else None
        if inner is None:
            raise NotProvable("its policy does not name classes")
        value = project.evaluate(value.origin.module, inner)
    if not isinstance(value, Sequenced):
        raise NotProvable("its policy does not name classes")
    if not all(isinstance(element, ast.Name | ast.Attribute) for element in value.elements):
        raise NotProvable("its policy does not name classes")
    return list(value.elements), value.origin.module


def _world_size(module: Module, trainer: ast.Call) -> str:
    """The number of processes, as code: `ModelParallelStrategy` does not find it out by itself."""
    given = {k.arg: k.value for k in trainer.keywords}
    if None in given or trainer.args:
        raise NotProvable("the trainer's arguments are not all named")
    precision = given.get("precision")
    if precision is not None and (not isinstance(precision, ast.Constant) or precision.value not in _SINGLE):
        raise NotProvable("its precision has to be given to `fully_shard`")
    if "plugins" in given:
        raise NotProvable("the trainer's plugins may decide the precision")
    devices, nodes = given.get("devices"), given.get("num_nodes")
    counts = [node.value if isinstance(node, ast.Constant) else None for node in (devices, nodes) if node]
    if devices is None or any(type(count) is not int or count < 1 for count in counts):
        raise NotProvable("the number of processes is decided at run time")
    return str(math.prod(int(str(count)) for count in counts))


def _strategy_edit(module: Module, strategy: ast.expr, given: dict[str, ast.expr], size: str) -> Edit:
    kind = given.get("state_dict_type")
    is_sharded = isinstance(kind, ast.Constant) and kind.value == "sharded"
    if kind is not None and not isinstance(kind, ast.Constant):
        raise NotProvable("`state_dict_type` is decided at run time")
    parts = [
        f"data_parallel_size={size}",
        "tensor_parallel_size=1",
        f"save_distributed_checkpoint={is_sharded}",
    ]
    parts += [f"{name}={module.code(given[name])}" for name in _PASSED_ON if name in given]
    home = "lightning.pytorch" if "pytorch_lightning" not in module.text else "pytorch_lightning"
    name = code(None, f"{{{home}.strategies.ModelParallelStrategy}}")
    return replace(module, strategy, (*name, f"({', '.join(parts)})"))


def _modules_trained(
    project: Project, module: Module, trainer: ast.Call
) -> Iterator[tuple[Module, ast.ClassDef]]:
    """The classes of everything that the trainer is given to train."""
    assigned = module.parent(trainer)
    if not isinstance(assigned, ast.Assign) or not isinstance(assigned.targets[0], ast.Name):
        raise NotProvable("what the trainer is used for was not found")
    name = assigned.targets[0].id
    for use in project.method_calls(*_LOOPS):
        if use.module is not module or not isinstance(use.receiver, ast.Name) or use.receiver.id != name:
            continue
        model = next((k.value for k in use.node.keywords if k.arg == "model"), None)
        model = use.node.args[0] if use.node.args else model
        if model is None:
            continue
        for value in options(project.evaluate(module, model)):
            node = value.function.node if isinstance(value, CallValue) else None
            if isinstance(value, Choice) or not isinstance(node, ast.ClassDef):
                raise NotProvable("which LightningModule it trains was not found")
            assert isinstance(value, CallValue) and value.function.module is not None
            yield value.function.module, node


def _configured(project: Project, home: Module, node: ast.ClassDef, layout: _Layout) -> Edit | None:
    """`configure_model` with `fully_shard` for a class; None where it has one."""
    methods = {s.name: s for s in node.body if isinstance(s, ast.FunctionDef)}
    existing = methods.get("configure_model") or methods.get("configure_sharded_model")
    if existing is not None:
        shards = "fully_shard" in {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(existing)}
        if shards:
            return None
        raise NotProvable(f"`{node.name}.{existing.name}` is written for something else")
    steps = [name for name in _STEPS if name in methods]
    if "training_step" not in steps:
        raise NotProvable(f"`{node.name}` takes its steps from another class")
    for element in layout.classes:
        here = project.index.lookup(home, home.scope, _name(element))
        there = project.resolve(layout.home, element)
        if home is not layout.home and (here is None or there is None or here.name != there.name):
            raise NotProvable(f"`{_name(element)}` is not known where `{node.name}` is written")
    last = methods.get("__init__", node.body[-1])
    return insert_after(home, last, _method(home, layout, steps))


def _name(element: ast.expr) -> str:
    return ast.unparse(element)


def _method(home: Module, layout: _Layout, steps: list[str]) -> Code:
    reshard = ", reshard_after_forward=False" if layout.keeps_unsharded else ""
    names = [_name(element) for element in layout.classes]
    classes = names[0] if len(names) == 1 else f"({', '.join(names)})"
    units = (
        "    for module in reversed(list(self.modules())):  # children before parents\n"
        f"        if isinstance(module, {classes}):\n"
        f"            {{torch.distributed.fsdp.fully_shard}}(module, mesh=mesh{reshard})\n"
        if names
        else ""
    )
    listed = ", ".join(f'"{step}"' for step in steps) + ("," if len(steps) == 1 else "")
    template = (
        "\ndef configure_model(self):\n"
        "    if isinstance(self, {torch.distributed.fsdp.FSDPModule}):\n"
        "        return  # Lightning calls this before each of its loops\n"
        '    mesh = self.device_mesh["data_parallel"]\n'
        f"{units}"
        f"    {{torch.distributed.fsdp.fully_shard}}(self, mesh=mesh{reshard})\n"
        f"    for step in ({listed}):  # what Lightning calls in place of `forward`\n"
        "        {torch.distributed.fsdp.register_fsdp_forward_method}(self, step)"
    )
    return code(home, template)
