"""Where sharded models come from: wraps, annotations, `isinstance` tests, calls of FSDP1's static methods."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.link import Links
from codemods.analysis.meanings import Meanings
from codemods.analysis.module import Module, last_name
from codemods.analysis.spread import Spread
from codemods.analysis.spread_marks import MODEL, OPTIMIZER, SAID
from codemods.analysis.spread_uses import Uses
from codemods.torch_names import FSDP


def follow(links: Links, meanings: Meanings) -> Spread:
    """Everywhere that sharded models, parts of them and their optimizers can get to."""
    spread = Spread(links)
    for site in links.wraps.values():
        spread.add(site.module, site.node, site.node if site.kind == "partial" else MODEL)
    for node, told in links.by_libraries.items():
        for mark in (*(MODEL for _ in told.positions[:1]), *(OPTIMIZER for _ in told.optimizers[:1])):
            spread.add(told.module, node, mark)
    for module in links.naming:
        named: set[ast.AST] = {node for node, symbol in meanings.of(module) if symbol.name == FSDP}
        _declared(spread, module, named)
        for call in module.called("fsdp_modules"):
            if isinstance(call.func, ast.Attribute) and call.func.value in named:
                spread.add(module, call, MODEL)
        for subject in _said(links, module, named):
            text = ast.unparse(subject)
            word = last_name(subject)
            for node in module.named(word):
                if ast.unparse(node) == text:
                    spread.add(module, node, SAID)
    spread.run(Uses(spread).hand_on)
    return spread


def _declared(spread: Spread, module: Module, named: set[ast.AST]) -> None:
    """Parameters, variables and results that an annotation says to be FSDP1's class.

    Args:
        named: where a module names that class.
    """

    def is_it(annotation: ast.expr) -> bool:
        if isinstance(annotation, ast.Constant):
            return spread.links.evidence.annotated(module, annotation)
        return annotation in named

    for node in module.nodes(ast.arg):
        assert isinstance(node, ast.arg)
        if node.annotation is not None and is_it(node.annotation):
            function = module.parent(module.parent(node) or node)
            if function is not None:
                spread.put_variable(module, module.table.scopes[function], node.arg, MODEL)
    for node in module.nodes(ast.AnnAssign):
        assert isinstance(node, ast.AnnAssign)
        if is_it(node.annotation):
            if isinstance(node.target, ast.Name):
                found = module.scope_of(node.target).lookup(node.target.id)
                if found is not None:
                    spread.put_variable(module, found[0], node.target.id, MODEL)
            elif node.value is not None:
                spread.add(module, node.value, MODEL)
    for kind in (ast.FunctionDef, ast.AsyncFunctionDef):
        for node in module.nodes(kind):
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if node.returns is not None and is_it(node.returns):
                spread.put_result(module, node, MODEL)


def _said(links: Links, module: Module, named: set[ast.AST]) -> Iterator[ast.expr]:
    """Names and attributes that the code says outright to be sharded models."""
    yield from links.evidence.subjects(module) if named else ()
    for call in module.called("isinstance"):
        is_asked = len(call.args) == 2 and call.args[1] in named
        if is_asked and isinstance(call.args[0], ast.Name | ast.Attribute):
            yield call.args[0]
