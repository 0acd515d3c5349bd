"""Questions about statements, and edits of their headers, that several rules ask and make."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from codemods.analysis.conditions import branches_before, leaves
from codemods.analysis.flow import reaching
from codemods.analysis.holding import Holding, Instance, Maybe
from codemods.analysis.module import Module, last_name
from codemods.analysis.values import CallValue, options
from codemods.editing.code import code, join
from codemods.model import Code, Edit, Span
from codemods.torch_names import FSDP

if TYPE_CHECKING:
    from codemods.project import Project

_OPPOSITE: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.GtE: "<",
    ast.Gt: "<=",
    ast.LtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_STATIC = (
    "state_dict_type",
    "set_state_dict_type",
    "optim_state_dict",
    "summon_full_params",
    "full_optim_state_dict",
)
# What those become, under whatever suffix an import needed to be told from another.
_EITHER = frozenset(
    {"get_model_state_dict", "get_optimizer_state_dict", "model_state_dict", "optim_state_dict"}
    | {"state_dict_type", "full_params"}
)
_NAMES_FSDP = re.compile(r"^(?!not\b)(?!.*!=).*fsdp(?!_?v?_?(?:2|ersion))")
_GENERICS = frozenset(
    {"Annotated", "Awaitable", "Callable", "ClassVar", "Dict", "Final", "Generator", "Iterable", "Iterator"}
    | {"List", "Mapping", "Optional", "Sequence", "Set", "Tuple", "Type", "Union"}
)
_OTHERS = ("accelerator", "fabric", "engine", "utils", "optimizer", "strategy")
_OTHER_FSDP = ("torch_xla", "fairscale")
_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
_RANK0_WORDS = ("is_main", "is_rank0", "is_rank_zero", "is_master", "is_global_zero")


def is_result_used(module: Module, call: ast.expr) -> bool:
    """Whether anything is done with an expression's value."""
    return not isinstance(module.parent(call), ast.Expr)


def is_annotation(module: Module, node: ast.expr) -> bool:
    """Whether an expression stands for a type: in an annotation, in `Union[...]` and its like, in a type
    alias, as what `typing.cast` or `TypeVar` is given."""
    child: ast.AST = node
    for parent in module.ancestors(node):
        match parent:
            case ast.arg():
                return parent.annotation is child
            case ast.AnnAssign():
                is_alias = last_name(parent.annotation) == "TypeAlias" and parent.value is child
                return parent.annotation is child or is_alias
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return parent.returns is child
            case ast.Subscript() if parent.slice is child and last_name(parent.value) in _GENERICS:
                return True
            case ast.Call():
                name = last_name(parent.func)
                is_first = bool(parent.args) and parent.args[0] is child
                return (name == "cast" and is_first) or (
                    name in ("TypeVar", "NewType") and child is not parent.func and not is_first
                )
            case ast.keyword() if parent.arg == "bound":
                pass
            case ast.expr():
                pass
            case _:
                return False
        child = parent
    return False


def annotation_words(module: Module) -> set[str]:
    """Names in types that are written as text."""
    found: set[str] = set()
    for node in module.nodes(ast.Constant):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_annotation(module, node):
            found.update(re.findall(r"\w+", node.value))
    return found


def is_under_rank0(module: Module, node: ast.AST) -> bool:
    """Whether a place is reached on rank 0 only, as far as the words of a condition say."""
    child: ast.AST = node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        if isinstance(parent, ast.If) and any(child is s for s in parent.body) and _is_rank0(parent.test):
            return True
        child = parent
    return False


def _is_rank0(test: ast.expr) -> bool:
    """Whether a condition holds on rank 0 only: `rank == 0`, `not rank`, `trainer.is_main_process`."""
    match test:
        case ast.BoolOp(op=ast.And()):
            return any(_is_rank0(value) for value in test.values)
        case ast.BoolOp(op=ast.Or()):
            others = [ast.unparse(value) for value in test.values if not _is_rank0(value)]
            alone = [words.startswith("not ") and words.endswith(".is_initialized()") for words in others]
            return len(others) < len(test.values) and all(alone)
        case ast.UnaryOp(op=ast.Not()):
            words = ast.unparse(test.operand).lower()
            return words.endswith("rank") and "is_" not in words
        case ast.Compare(ops=[ast.Eq()]):
            sides = [test.left, *test.comparators]
            zeros = [s for s in sides if isinstance(s, ast.Constant) and s.value == 0]
            named = [s for s in sides if ast.unparse(s).lower().endswith(("rank", "rank()"))]
            return bool(zeros and named)
        case _ if isinstance(test, _ATOMS):
            return any(word in ast.unparse(test).lower() for word in _RANK0_WORDS)
    return False


def unwrapping_loop(module: Module, node: ast.AST) -> ast.While | None:
    """The `while isinstance(x, ...): x = x.module` around a node."""
    for loop in module.ancestors(node):
        match loop:
            case ast.While(test=ast.Call(func=ast.Name(id="isinstance"), args=[subject, _]), body=body):
                name = ast.unparse(subject)
                inner = {f"{name} = {name}.module", f"{name} = {name}._fsdp_wrapped_module"}
                return loop if any(ast.unparse(statement) in inner for statement in body) else None
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                return None
    return None


def can_only_be_sharded(project: Project, module: Module, receiver: ast.expr, method: str) -> bool:
    """Whether an object that was not found can, with a method that few classes have, only be FSDP1's.

    Not so for `self`, names that other libraries' objects go by, objects whose making is seen, beside another
    FSDP, and in a project without FSDP1. A module of the project whose class has no such method was wrapped
    in a way that was not seen: `setattr(self, name, FSDP(part))`.
    """
    if not isinstance(receiver, ast.Name | ast.Attribute):
        return False
    words = ast.unparse(receiver).lower()
    if words == "self" or any(word in words for word in _OTHERS):
        return False
    if any(word in module.text for word in _OTHER_FSDP):
        return False
    if not project.uses(FSDP) or project.resolve(module, receiver) is not None:
        return False
    if isinstance(receiver, ast.Attribute) and _is_part_without(project, module, receiver, method):
        return True
    if any(isinstance(value, CallValue) for value in options(project.evaluate(module, receiver))):
        return False
    return project.links.is_unseen(module, receiver)


def _is_part_without(project: Project, module: Module, receiver: ast.Attribute, method: str) -> bool:
    """Whether an attribute holds modules of the project, whose classes have no such method, and attributes
    are set by names that the program computes."""
    held, classes = project.links.held(module, receiver), project.links.classes
    homes = {module, *(site.module for site in project.wraps)}
    is_set = any(
        len(call.args) == 3 and not isinstance(call.args[1], ast.Constant)
        for home in homes
        for call in home.called("setattr")
    )
    return (
        is_set
        and bool(held)
        and all(
            isinstance(one, Instance)
            and classes.is_module(one.node, one.module)
            and all(base.startswith("torch.nn.") for base in classes.outside_bases(one.node, one.module))
            and not classes.methods(one, method)
            for one in held
        )
    )


def may_be_ddp(module: Module) -> bool:
    """Whether a file also wraps models in DistributedDataParallel."""
    return "DistributedDataParallel" in module.text or "DDP(" in module.text


def homes_of(module: Module, holding: Holding) -> set[Module]:
    """The files in which it may be decided how a model of a place is wrapped: its own, and the wraps'."""
    return {module, *(site.module for site in holding.sites)} if isinstance(holding, Maybe) else {module}


def is_by_library(holding: Holding) -> bool:
    """Whether a library decides when the program runs if a model is sharded: Accelerate wraps the others in
    DistributedDataParallel."""
    return isinstance(holding, Maybe) and not holding.sites


def is_unwrapped(module: Module, node: ast.expr) -> bool:
    """Whether something is the model without its wrappers: `accelerator.unwrap_model(model)`, or a name of
    it."""
    values = values_named(module, node)
    return bool(values) and all("unwrap" in ast.unparse(value) for value in values)


def values_named(module: Module, node: ast.expr) -> list[ast.expr]:
    """An expression, or what a name is bound to where it is read; nothing, if one of them is not seen."""
    found = module.scope_of(node).lookup(node.id) if isinstance(node, ast.Name) else None
    if found is None:
        return [node]
    values = [binding.value for binding in reaching(module, *found, node)]
    return [value for value in values if value is not None] if None not in values else []


def negated(module: Module, test: ast.expr) -> Code:
    """The opposite condition, as a person would write it."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            return code(module, "{x}", x=test.operand)
        case ast.Compare(ops=[op]) if type(op) in _OPPOSITE:
            return code(module, "{a} {op} {b}", a=test.left, op=_OPPOSITE[type(op)], b=test.comparators[0])
        case ast.BinOp(op=ast.Mod()):
            return code(module, "{x} == 0", x=test)
        case ast.Constant(value=bool()):
            return (str(not test.value),)
        case _ if isinstance(test, _ATOMS):
            return code(module, "not {x}", x=test)
    return code(module, "not ({x})", x=test)


def remove_with_item(module: Module, block: ast.With, item: ast.withitem) -> Edit:
    """Take one of several contexts out of a `with` statement's header."""
    kept = [_item(module, other) for other in block.items if other is not item]
    last = block.items[-1].optional_vars or block.items[-1].context_expr
    colon = module.text.index(":", module.span(last).end)
    return Edit(module.path, Span(module.span(block).start, colon), ("with ", *join(kept, ", ")))


def _item(module: Module, item: ast.withitem) -> Code:
    context = code(module, "{x}", x=item.context_expr)
    if not isinstance(item.context_expr, _ATOMS):
        context = ("(", *context, ")")
    if item.optional_vars is None:
        return context
    return (*context, " as ", *code(module, "{x}", x=item.optional_vars))


def is_where_not_instance(module: Module, node: ast.AST, text: str) -> bool:
    """Whether a place is reached only when `isinstance(<text>, FSDP)` fails: an else branch, or after a
    jump."""
    leaving = (b for b in branches_before(module, node) if leaves(b.body))
    if any(_is_instance_test(branch.test, text) for branch in leaving):
        return True
    child = node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp):
            orelse = parent.orelse if isinstance(parent.orelse, list) else [parent.orelse]
            if any(child is part for part in orelse) and _is_instance_test(parent.test, text):
                return True
            body = parent.body if isinstance(parent.body, list) else [parent.body]
            negative = isinstance(parent.test, ast.UnaryOp) and isinstance(parent.test.op, ast.Not)
            if negative and any(child is part for part in body):
                assert isinstance(parent.test, ast.UnaryOp)
                if _is_instance_test(parent.test.operand, text):
                    return True
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        child = parent
    return False


def is_where_other_branch_shards(module: Module, node: ast.AST, text: str) -> bool:
    """Whether a place is in the else branch of an `if` whose other branch treats `<text>` as FSDP1's
    wrapper."""
    child = node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.If) and any(child is part for part in parent.orelse):
            calls = [n for s in parent.body for n in ast.walk(s) if isinstance(n, ast.Call)]
            if any(_only_fsdp1(call, text) for call in calls):
                return True
            # What an earlier run made of it: torch's functions take any model, the condition decides.
            words = ast.unparse(parent.test).lower()
            if _NAMES_FSDP.search(words) and any(_of_either_stack(call, text) for call in calls):
                return True
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        child = parent
    return False


def is_behind_branch_that_shards(module: Module, node: ast.AST, text: str) -> bool:
    """Whether a branch that treats `<text>` as FSDP1's wrapper leaves the function before a place."""
    return any(
        leaves(branch.body)
        and any(_only_fsdp1(n, text) for s in branch.body for n in ast.walk(s) if isinstance(n, ast.Call))
        for branch in branches_before(module, node)
    )


def _only_fsdp1(call: ast.Call, text: str) -> bool:
    """`<text>.clip_grad_norm_(...)`, `FSDP.state_dict_type(<text>, ...)` and their like."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in ("clip_grad_norm_", "no_sync") and ast.unparse(call.func.value) == text:
        return True
    given = [*call.args[:3], *(k.value for k in call.keywords)]
    return call.func.attr in _STATIC and any(ast.unparse(argument) == text for argument in given)


def _of_either_stack(call: ast.Call, text: str) -> bool:
    """`get_model_state_dict(<text>, ...)` and its like, `clip_grad_norm_(<text>.parameters(), ...)`."""
    name = last_name(call.func).rstrip("_")
    first = ast.unparse(call.args[0]) if call.args else ""
    return (name in _EITHER and first == text) or (
        name == "clip_grad_norm" and first == f"{text}.parameters()"
    )


def _is_instance_test(test: ast.expr, text: str) -> bool:
    words = ast.unparse(test)
    if words == f"hasattr({text}, 'clip_grad_norm_')":
        return True
    return words.startswith(f"isinstance({text},") and ("FSDP" in words or "FullySharded" in words)
