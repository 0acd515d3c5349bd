"""What in a `with FSDP.state_dict_type(...)` block is its model, a part of it, or hands it on."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from codemods.analysis.flow import reaching
from codemods.analysis.holding import No
from codemods.analysis.spoken_names import says_optimizer
from codemods.analysis.state_dicts import Block, is_one_of_modules, same_model

if TYPE_CHECKING:
    from codemods.project import Project

# What may be done with a model inside the block without asking for its state dict.
_HARMLESS = frozenset(
    {"print", "isinstance", "len", "next", "list", "id", "type", "hasattr", "getattr", "repr", "str"}
)
_HARMLESS_METHODS = frozenset(
    {"parameters", "named_parameters", "modules", "named_modules", "eval", "train", "children"}
)
_LOGS = frozenset({"logger", "logging", "log"})
_NO_MODULES = ("optim", "sched", "scaler", "loader", "sampler", "tokenizer", "config", "callback")


def is_model(project: Project, block: Block, node: ast.expr) -> bool:
    """Whether an expression names the block's model."""
    return same_model(project, block.module, node, block.module, block.model)


def is_part(block: Block, node: ast.expr) -> bool:
    """Whether an expression names a part of the block's model: `model.encoder`, or a variable that holds
    it."""
    module = block.module
    if isinstance(node, ast.Name):
        found = module.scope_of(node).lookup(node.id)
        live = reaching(module, *found, node) if found is not None else []
        values = [b.value for b in live if b.value is not None and not b.unpack]
        steps = ast.Attribute | ast.Subscript
        return (
            bool(live)
            and len(values) == len(live)
            and all(isinstance(value, steps) and is_part(block, value) for value in values)
        )
    whole, inner = ast.unparse(block.model), node
    if any(word in ast.unparse(node).lower().removeprefix(whole.lower()) for word in _NO_MODULES):
        return False
    while isinstance(inner, ast.Attribute | ast.Subscript):
        inner = inner.value
        if ast.unparse(inner) == whole:
            return True
    return False


def gives_model_away(project: Project, block: Block, call: ast.Call) -> str | None:
    """Why a call in the block may ask for a state dict that is not seen here, or is that of a unit alone."""
    match call.func:
        case ast.Attribute(value=ast.Name() as one, attr="state_dict" | "load_state_dict"):
            if is_one_of_modules(block.module, one) and not is_model(project, block, one):
                asked = f"units are asked one by one (`{ast.unparse(call.func)}`)"
                return f"{asked}, each of which FSDP1 gave to rank 0 of its own group"
    given = [*call.args, *(k.value for k in call.keywords)]
    if not any(isinstance(a, ast.Name | ast.Attribute) and is_model(project, block, a) for a in given):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in ("save_pretrained", "push_to_hub"):
            return None
        told = any(keyword.arg == "state_dict" for keyword in call.keywords)
        if told or not is_model(project, block, func.value):
            return None
        return f"`{func.attr}` asks the model for its state dict by itself"
    symbol = project.resolve(block.module, call.func)
    if symbol is not None and (
        symbol.module is not None or ".fsdp." in symbol.name or symbol.name.startswith("torch.")
    ):
        return None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in _HARMLESS or name in _HARMLESS_METHODS:
        return None
    return f"`{ast.unparse(call.func)}` is given the model inside the context and may ask for its state dict"


def asks_no_model(project: Project, block: Block, calls: list[ast.Call]) -> bool:
    """Whether a block asks no model for a state dict: it calls libraries, which are not given the model, and
    optimizers, whose own state dict knows no kinds."""
    for call in calls:
        func, given = call.func, [*call.args, *(k.value for k in call.keywords)]
        if any(isinstance(a, ast.Name | ast.Attribute) and is_model(project, block, a) for a in given):
            return False
        if isinstance(func, ast.Attribute) and func.attr in ("state_dict", "load_state_dict"):
            is_optimizer = not isinstance(project.optimizer_of(block.module, func.value), No)
            if not (is_optimizer or says_optimizer(func.value)) or is_model(project, block, func.value):
                return False
            continue
        symbol = project.resolve(block.module, func)
        is_library = symbol is not None and symbol.module is None and ".fsdp." not in symbol.name
        last = ast.unparse(func.value).rpartition(".")[2] if isinstance(func, ast.Attribute) else ""
        if not (is_library or last in _LOGS or getattr(func, "id", "") in _HARMLESS):
            return False
    return True
