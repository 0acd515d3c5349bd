"""What names say where values are mixed: a scheduler is not a model, `if is_fsdp: ... else:` is not about one
that is sharded. Pure."""

from __future__ import annotations

import ast
import re

from codemods.analysis.conditions import conditions
from codemods.analysis.flow import reaching
from codemods.analysis.module import Module, last_name

_SWITCH = re.compile(r"(?:use_|enable_|with_|is_)?fsdp(?:_config|_plugin|_enabled)?", re.IGNORECASE)
"""Keywords that switch FSDP on and off."""

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_OPTIMIZERS = frozenset({"optim", "optimizer", "optimizers", "optims"})
_MODELS = frozenset({"model", "models", "net", "nets", "module", "modules", "network", "transformer"})
_OTHERS = frozenset(
    {"scheduler", "schedulers", "scaler", "scalers", "sampler", "samplers", "tokenizer", "tokenizers"}
    | {"dataloader", "dataloaders", "loader", "loaders", "dataset", "datasets", "callback", "callbacks"}
    | {"algorithm", "algorithms", "algo", "algos", "logger", "loggers", "timestamp", "metric", "metrics"}
    | {"config", "cfg", "opt", "opts", "dl", "dls"}
)


def says_no_model(node: ast.expr) -> bool:
    """Whether a name says that it is something beside the model: `lr_scheduler`, `self.optimizer`."""
    word = _last_word(node)
    return word in _OTHERS or word in _OPTIMIZERS


def says_optimizer(node: ast.expr) -> bool:
    """Whether a name says that it is an optimizer: `self.optimizer`, `opt`."""
    return _last_word(node) in _OPTIMIZERS | {"opt", "opts"}


def says_no_optimizer(node: ast.expr) -> bool:
    """Whether a name says that it is something beside the optimizer: `init_scheduler`, `callback`."""
    return _last_word(node) in _OTHERS - {"opt", "opts"}


def says_model(node: ast.expr) -> bool:
    """Whether a name says that it is a model: `self.model`, `ema_net`, `module`."""
    return _last_word(node) in _MODELS


def _last_word(node: ast.expr) -> str:
    """`scheduler` of `self.lr_scheduler` and `lrScheduler`; nothing of `optimizer_model`'s like, a model."""
    match node:
        case ast.Subscript(slice=ast.Constant(value=str() as name)):
            pass
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name)):
            pass
        case ast.Name(id=name) | ast.Attribute(attr=name):
            pass
        case _:
            return ""
    words = _WORDS.findall(name)
    return words[-1].lower() if words else ""


_SAID = frozenset({"fsdp", "is", "use", "using", "enable", "enabled", "has", "with", "model", "wrapped"})
_FSDP2 = re.compile(r"^(?!.*fsdp_?v?1).*(?:fsdp_?v?2(?![0-9])|fully_?shard(?!ed))", re.IGNORECASE)
_OTHER_STACKS = re.compile(r"deepspeed|megatron|\bxla\b", re.IGNORECASE)
_OTHER_WRAPPERS = frozenset({"DDP", "DataParallel", "DeepSpeedEngine", "DistributedDataParallel"})


def is_where_unsharded(module: Module, node: ast.AST) -> bool:
    """Whether the conditions around a place say that it is not for models of FSDP.

    The other branch of `if is_fsdp(model):` or of `if a.distributed_type == DistributedType.FSDP:`, what
    stands behind one that leaves, and the branch of `if kind == Kind.DEEPSPEED:` or `if isinstance(model,
    DDP):`. Nothing is made of `fsdp2` and versions: there the other branch is FSDP1's.
    """
    return any(_says(test, is_met=is_met) for test, is_met in conditions(module, node))


def is_said_unsharded(module: Module, node: ast.expr) -> bool:
    """Whether the conditions around a place ask of this very model, and find that it is not FSDP's:
    `if is_model_fsdp(model): ... else:`."""
    text = ast.unparse(node)
    return any(
        not is_met
        and isinstance(test, ast.Call)
        and _asks_for_fsdp(test)
        and any(ast.unparse(argument) == text for argument in test.args)
        for test, is_met in conditions(module, node)
    )


def is_for_fsdp2(module: Module, node: ast.AST) -> bool:
    """Whether a place is in a function whose name says that it is for FSDP2's models:
    `fsdp2_load_full_state_dict`."""
    return any(
        isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef) and _FSDP2.search(parent.name)
        for parent in module.ancestors(node)
    )


def is_other_wrapper(module: Module, node: ast.expr) -> bool:
    """Whether a name is a parameter that is said to be wrapped by something else than FSDP."""
    if not isinstance(node, ast.Name):
        return False
    function = module.function(node)
    arguments = function.args if function is not None else None
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if arguments else ():
        if argument.arg == node.id and argument.annotation is not None:
            return ast.unparse(argument.annotation).strip("'\"").rpartition(".")[2] in _OTHER_WRAPPERS
    return False


def is_made_plain(module: Module, node: ast.expr) -> bool:
    """Whether what makes a name's value says that it is not sharded, wherever it comes from:
    `build(world_size=1).train()`, `build(fsdp_config=None)`."""
    found = module.scope_of(node).lookup(node.id) if isinstance(node, ast.Name) else None
    values = [binding.value for binding in reaching(module, *found, node)] if found is not None else []
    return bool(values) and all(value is not None and _says_plain(value) for value in values)


def _says_plain(value: ast.expr) -> bool:
    keywords = [n for n in ast.walk(value) if isinstance(n, ast.keyword) and n.arg]
    return any(
        (k.arg == "world_size" and ast.unparse(k.value) == "1")
        or (_SWITCH.fullmatch(k.arg or "") and isinstance(k.value, ast.Constant) and not k.value.value)
        for k in keywords
    )


def _says(test: ast.expr, *, is_met: bool) -> bool:
    """Whether a condition, met or not, says that no model is sharded."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _says(inner, is_met=not is_met)
        case ast.BoolOp(op=ast.And(), values=values) if is_met:
            return any(_says(value, is_met=True) for value in values)
        case ast.BoolOp(op=ast.Or(), values=values) if not is_met:
            return any(_says(value, is_met=False) for value in values)
        case ast.Compare(left=kind, ops=[op], comparators=[other]) if _is_of_accelerate(kind, other):
            return is_met is isinstance(op, ast.NotEq | ast.IsNot | ast.NotIn)
        case ast.Compare(ops=[ast.Eq() | ast.Is()], comparators=[other]):
            return is_met and _OTHER_STACKS.search(ast.unparse(other)) is not None
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name(id=kind) | ast.Attribute(attr=kind)]):
            return is_met and kind in _OTHER_WRAPPERS
        case ast.Name() | ast.Attribute() | ast.Call():
            return not is_met and _asks_for_fsdp(test)
    return False


def _is_of_accelerate(kind: ast.expr, other: ast.expr) -> bool:
    """`accelerator.distributed_type` beside `DistributedType.FSDP`, which stands for FSDP2 too."""
    return "distributed_type" in ast.unparse(kind) and re.search(r"\bFSDP\b", ast.unparse(other)) is not None


def _asks_for_fsdp(test: ast.expr) -> bool:
    """`use_fsdp`, `self.fsdp_enabled`, `is_model_fsdp(model)`."""
    asked = test.func if isinstance(test, ast.Call) else test
    name = last_name(asked)
    words = set(name.lower().strip("_").split("_"))
    return "fsdp" in words and words <= _SAID
