"""Parameters that are kept or written while the root of a sharded model is gathered.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_state.py` (the root stays gathered after a forward pass
until the next backward pass ends)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass

from codemods.analysis.evaluations import is_only_evaluated, is_without_gradients
from codemods.analysis.flow import reaching
from codemods.analysis.origins import Origins
from codemods.analysis.summoned import is_summoned
from codemods.rule import Finding, Module, No, Project, WrapCall, finding, rule


@dataclass(frozen=True, slots=True)
class _Model:
    """A model as other functions know it: where it is wrapped, and what it was made from."""

    sites: frozenset[WrapCall]
    made: frozenset[ast.AST]


_LISTS = ("parameters", "named_parameters")


@rule(
    "parameters after a forward pass",
    {"FM520": "parameters kept or written after a forward pass without a backward pass"},
)
def parameters_after_forward(project: Project) -> Iterator[Finding]:
    """After a forward pass and before the end of a backward pass, the root's parameters are temporary.

    `fully_shard` leaves the root gathered after a forward pass. `model.parameters()` then gives whole,
    temporary tensors for it: what is written to them is lost when the root is resharded, and a list of them
    (for an average of weights, say) is no longer the model's. Found where, in one function, the last thing
    done with the model was a forward pass (an evaluation, say), and parameters are then put into a list or
    changed in place; and in loops, where the program only ever evaluates the model: an average of weights
    that was evaluated in one turn is written to in the next. A backward pass through another model alone, the
    critic of what this one made without gradients, ends nothing. Reshard first:

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
    """
    for call in (c for name in _LISTS for c in project.method_calls(name)):
        module, text = call.module, ast.unparse(call.receiver)
        holding = project.sharded(module, call.receiver)
        if isinstance(holding, No) or _takes_names_only(module, call.node) or is_summoned(module, call.node):
            continue
        if not _is_kept(project, module, call.node) and not _is_written(module, call.node):
            continue
        start = module.span(module.statement(call.node)).start
        last = _last(project, module, call.node, start, {text})
        if not last:
            made = Origins(project.links).of(module, call.receiver)
            last = _before_calls(project, module, call.node, _Model(holding.sites, frozenset(made)))
        if last == "forward" or (
            last != "reshard"
            and _is_repeated(project, module, call.node)
            and is_only_evaluated(project, module, call.receiver, holding.sites)
        ):
            yield finding(
                module,
                call.node,
                "FM520",
                "the root is still gathered from the forward pass: its parameters are temporary here",
                remedy=(
                    "reshard first: `for module in model.modules(): if isinstance(module, FSDPModule): "
                    "module.reshard()`"
                ),
            )


def _is_repeated(project: Project, module: Module, node: ast.AST, depth: int = 3) -> bool:
    """Whether a place can be reached after what comes later in the text: it, or a call of its function, is in
    a loop other than that over the parameters."""
    if any(True for _ in _loops(module, node)):
        return True
    function = module.function(node)
    if function is None or not depth:
        return False
    calls = project.links.calls_of(module, function)
    return any(_is_repeated(project, home, call, depth - 1) for home, call in calls)


def _takes_names_only(module: Module, call: ast.Call) -> bool:
    """`for name, _ in model.named_parameters()`."""
    loop = module.parent(call)
    if not isinstance(loop, ast.For | ast.comprehension) or not isinstance(loop.target, ast.Tuple):
        return False
    last = loop.target.elts[-1]
    return isinstance(last, ast.Name) and last.id == "_"


def _last(project: Project, module: Module, node: ast.AST, start: int, texts: Set[str]) -> str:
    """What happened last to a model before a place in the function around a node, earlier in the text or
    later in a loop around it: `forward`, `backward`, `reshard`, or nothing.

    Args:
        texts: the expressions that are the model there.
    """
    function = module.function(node)
    events = sorted(event for text in texts for event in _events(project, module, function, text))
    earlier = [event for event in events if event[0] <= start]
    for loop in _loops(module, node):
        span = module.span(loop)
        turn = [event for event in events if span.start <= event[0] < span.end]
        if turn and (not earlier or earlier[-1] not in turn) and turn[-1][1] == "forward":
            return "forward"
    return earlier[-1][1] if earlier else ""


def _before_calls(project: Project, module: Module, node: ast.AST, model: _Model, depth: int = 2) -> str:
    """The same of the functions that call that of a place; one that goes on behind the `yield` of a context
    manager is reached at the end of a block."""
    function = module.function(node)
    if function is None or not depth:
        return ""
    here = module.span(node).start
    is_exit = any(isinstance(n, ast.Yield) and module.span(n).end < here for n in ast.walk(function))
    for home, call in project.links.calls_of(module, function):
        block = home.statement(call)
        start = home.span(block).end if is_exit and isinstance(block, ast.With) else home.span(call).start
        last = _last(project, home, call, start, _texts(project, home, call, model))
        last = last or _before_calls(project, home, call, model, depth - 1)
        if last == "forward":
            return last
    return ""


def _texts(project: Project, module: Module, node: ast.AST, model: _Model) -> set[str]:
    """What a model is called in a function around a node, of what is run there or given to a call."""
    function = module.function(node)
    found: set[str] = set()
    for call in (n for n in ast.walk(function or module.tree) if isinstance(n, ast.Call)):
        for one in (call.func, *call.args):
            if not isinstance(one, ast.Name | ast.Attribute) or not project.links.may_be_sharded(one):
                continue
            holding = project.sharded(module, one)
            if not isinstance(holding, No) and holding.sites & model.sites:
                made = Origins(project.links).of(module, one)
                if not made or not model.made or model.made & made:
                    found.add(ast.unparse(one))
    return found


def _loops(module: Module, node: ast.AST) -> Iterator[ast.For | ast.While]:
    """The loops of its function around a place, without that over the parameters."""
    own = module.statement(node)
    for parent in module.ancestors(own):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        if isinstance(parent, ast.For | ast.While):
            yield parent


def _events(
    project: Project, module: Module, function: ast.AST | None, text: str
) -> Iterator[tuple[int, str]]:
    """Where a function runs the model `forward`, or something `backward`, or `reshard`s it."""
    for call in (n for n in ast.walk(function or module.tree) if isinstance(n, ast.Call)):
        place = module.span(call).end  # that of `model().backward()` is behind that of `model()`
        if module.function(call) is not function:
            continue
        if ast.unparse(call.func) == text and not isinstance(project.sharded(module, call.func), No):
            yield place, "forward"
        elif ended := _ended_by(call):
            if ended != "backward" or not _is_through_another(project, module, call, text):
                yield place, ended
        elif isinstance(call.func, ast.Name | ast.Attribute) and any(
            ast.unparse(argument) == text for argument in call.args
        ):
            symbol = project.resolve(module, call.func)
            if symbol is not None and isinstance(symbol.node, ast.FunctionDef) and symbol.module is not None:
                outcome = _outcome(symbol.module, symbol.node, call, text)
                if outcome:
                    yield place, outcome


def _ended_by(call: ast.Call) -> str:
    """`backward` or `reshard`, after which the root is sharded again; `_reshard` is FSDP1's."""
    name = ast.unparse(call.func).rpartition(".")[2].removeprefix("_")
    return name if name in ("backward", "reshard") else ""


def _is_through_another(project: Project, module: Module, backward: ast.Call, text: str) -> bool:
    """Whether all that a loss is made of, through names of the function, runs another sharded model, and this
    one at most without gradients."""
    is_other = False
    for part in _made_of(module, backward.func):
        for call in (n for n in ast.walk(part) if isinstance(n, ast.Call)):
            if text in map(ast.unparse, (call.func, *call.args)):
                if not is_without_gradients(module, call):
                    return False
            elif not isinstance(project.sharded(module, call.func), No):
                is_other = True
    return is_other


def _made_of(module: Module, node: ast.AST) -> list[ast.AST]:
    """An expression, and the values that names in it were assigned, and so on."""
    found = [node]
    for part in found:  # grows
        for name in (n for n in ast.walk(part) if isinstance(n, ast.Name)):
            seen = module.scope_of(name).lookup(name.id)
            bound = reaching(module, *seen, name) if seen is not None else ()
            found += [b.value for b in bound if b.value is not None and b.value not in found]
    return found


def _outcome(module: Module, function: ast.FunctionDef, call: ast.Call, text: str) -> str:
    """What a function does last to the model that it is given."""
    position = next(i for i, argument in enumerate(call.args) if ast.unparse(argument) == text)
    if position >= len(function.args.args):
        return ""
    name, found = function.args.args[position].arg, ""
    calls = [n for n in ast.walk(function) if isinstance(n, ast.Call)]
    for inner in sorted(calls, key=lambda c: module.span(c).end):
        is_run = isinstance(inner.func, ast.Name) and inner.func.id == name
        found = "forward" if is_run else _ended_by(inner) or found
    return found


def _is_kept(project: Project, module: Module, node: ast.Call) -> bool:
    """Whether parameters, or copies of their storage, go into a list or dict that has a name."""
    statement = module.statement(node)
    if not isinstance(statement, ast.Assign) or any(
        isinstance(n, ast.Call) and project.links.builds_optimizer(module, n) for n in ast.walk(statement)
    ):
        return False
    parent = module.parent(node)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        return parent.func.id in ("list", "tuple", "dict") and parent is statement.value
    if isinstance(parent, ast.comprehension):
        around = module.parent(parent)
        element = getattr(around, "elt", getattr(around, "value", None))
        words = {n.attr for n in ast.walk(element) if isinstance(n, ast.Attribute)} if element else set()
        return around is statement.value and not words & {"grad", "numel", "shape", "size", "dtype"}
    return False


def _is_written(module: Module, node: ast.Call) -> bool:
    """Whether a loop over the parameters changes them, or others by them, in place."""
    loop = next((p for p in module.ancestors(node) if isinstance(p, ast.For | ast.stmt)), None)
    if not isinstance(loop, ast.For) or node not in set(ast.walk(loop.iter)):
        return False
    names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    for inner in (n for s in loop.body for n in ast.walk(s)):
        match inner:
            case ast.Attribute(value=ast.Name(id=name), attr="data", ctx=ast.Store()) if name in names:
                return True
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            held: ast.expr = inner.func.value
            is_data = isinstance(held, ast.Attribute) and held.attr == "data"
            held = held.value if is_data and isinstance(held, ast.Attribute) else held
            method = inner.func.attr
            changes = method.endswith("_") and not method.startswith("_") and method != "requires_grad_"
            given = {n.id for a in inner.args for n in ast.walk(a) if isinstance(n, ast.Name)}
            if changes and ((isinstance(held, ast.Name) and held.id in names) or given & names):
                return True
    return False
