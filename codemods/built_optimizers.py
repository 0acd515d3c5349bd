"""Where optimizers are built, and what their parameters are taken from."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.entry_methods import methods_within
from codemods.analysis.holding import No, WrapCall
from codemods.analysis.module import Module
from codemods.editing.moves import names_bound, names_in
from codemods.project import Project


def optimizer_calls(project: Project) -> Iterator[tuple[Module, ast.Call]]:
    """Every call that builds an optimizer, or calls a function of the project that builds and returns one."""
    builders: dict[ast.FunctionDef | ast.AsyncFunctionDef, Module] = {}
    for module in project.looked_at:
        for call in module.calls():
            if project.links.builds_optimizer(module, call):
                yield module, call
                function = module.function(call)
                if function is not None:
                    builders[function] = module
    calls = [found for function, home in builders.items() for found in project.links.calls_of(home, function)]
    for module, call in sorted(calls, key=lambda found: (found[0].path, found[0].span(found[1]).start)):
        if project.links.optimizers(module, call):
            yield module, call
    for function in builders:  # asked of what is a wrapper elsewhere: `self.model.configure_optimizers()`
        for module in project.looked_at:
            for call in module.called(function.name):
                model = call.func.value if isinstance(call.func, ast.Attribute) else None
                holding = project.sharded(module, model) if model is not None else No()
                sites = () if isinstance(holding, No) else holding.sites
                if any(function in methods_within(project.links, site, function.name) for site in sites):
                    yield module, call


def models_of(project: Project, module: Module, call: ast.Call) -> list[ast.expr]:
    """What an optimizer's parameters are taken from, or what is given to the function that builds it."""
    owners = project.links.parameter_owners(module, call) or _filled_from(module, call)
    here = [owner for owner in owners if module.function(owner) is module.function(call)]
    return here or [*_given(module, call), *owners]


def _given(module: Module, call: ast.Call) -> Iterator[ast.expr]:
    """Names and attributes that a call is given, the object whose method it is, and those given to the
    functions that group parameters for it: `AdamW(groups(model))`, `groups = grouped(model); AdamW(groups)`,
    `model.configure_optimizers()`, `AdamW(model.groups())`."""
    statement = module.statement(call)
    block = module.block(statement)
    bound = {
        target.id: earlier.value
        for earlier in block[: block.index(statement)]
        if isinstance(earlier, ast.Assign)
        for target in earlier.targets
        if isinstance(target, ast.Name)
    }
    values = [call, *(bound[name] for name in names_in(call) if name in bound)]
    for inner in (n for value in values for n in ast.walk(value) if isinstance(n, ast.Call)):
        receivers = [inner.func.value] if isinstance(inner.func, ast.Attribute) else []
        for argument in (*inner.args, *(k.value for k in inner.keywords), *receivers):
            if isinstance(argument, ast.Name | ast.Attribute):
                yield argument


def _filled_from(module: Module, call: ast.Call) -> list[ast.expr]:
    """`model` of the loops over `model.parameters()` that fill a list which the call is given."""
    function = module.function(call) or module.tree
    needed = names_in(call)
    found = []
    for loop in (n for n in ast.walk(function) if isinstance(n, ast.For)):
        match loop.iter:
            case ast.Call(func=ast.Attribute(value=model, attr="parameters" | "named_parameters")):
                if names_bound(loop) & needed and module.span(loop).end <= module.span(call).start:
                    found.append(model)
    return found


def is_item(module: Module, owner: ast.expr, site: WrapCall) -> bool:
    """Whether a wrap in the same function is given the same item of a container: `job["model"]`, or each of
    those that both loop over."""
    if site.wrapped is None or site.module is not module:
        return False
    if module.function(owner) is not module.function(site.node):
        return False
    if isinstance(owner, ast.Subscript):
        return ast.unparse(owner) == ast.unparse(site.wrapped)
    return bool(_looped_over(module, owner) & _looped_over(module, site.wrapped))


def _looped_over(module: Module, node: ast.expr) -> set[str]:
    """The names of what is looped over where a name stands for each of its items."""
    found: set[str] = set()
    name = node.id if isinstance(node, ast.Name) else None
    for parent in module.ancestors(node) if name is not None else ():
        loops = parent.generators if isinstance(parent, ast.ListComp | ast.DictComp | ast.SetComp) else []
        for loop in [parent] if isinstance(parent, ast.For) else loops:
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(loop.target)):
                called = {n.func for n in ast.walk(loop.iter) if isinstance(n, ast.Call)}
                found |= {n.id for n in ast.walk(loop.iter) if isinstance(n, ast.Name) and n not in called}
    return found
