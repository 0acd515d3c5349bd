"""The classes that a call can construct, by name or from a table: `{"lion": Lion, "sgd": SGD}[n](params)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from codemods.analysis.evaluate import Evaluator
from codemods.analysis.index import Symbol
from codemods.analysis.module import Module
from codemods.analysis.values import Named, options
from codemods.torch_names import is_torch_optimizer

if TYPE_CHECKING:
    from codemods.analysis.link import Links

_OF_PARAMETERS = ("param", "group")
"""In what optimizers are given: of other calls only the name is asked."""


def classes_called(links: Links, module: Module, call: ast.Call) -> list[Symbol]:
    """What is called, or can be: of a name that has several values, or of a table, all of them."""
    symbol = links.index.resolve(module, call.func)
    if symbol is not None:
        return [symbol]
    if not isinstance(call.func, ast.Name | ast.Subscript) or not _is_given_parameters(call):
        return []
    values = options(Evaluator(links.index, links.callers).evaluate(module, call.func))
    return [value.symbol for value in values if isinstance(value, Named)]


def optimizers_called(links: Links, module: Module, call: ast.Call) -> list[Symbol]:
    """The optimizers, torch's and the project's own, among them."""
    return [s for s in classes_called(links, module, call) if _is_optimizer(links, s)]


def _is_optimizer(links: Links, symbol: Symbol) -> bool:
    if symbol.module is None:
        return is_torch_optimizer(symbol.name)
    return isinstance(symbol.node, ast.ClassDef) and links.classes.is_optimizer(symbol.node, symbol.module)


def _is_given_parameters(call: ast.Call) -> bool:
    first = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "params")]
    words = (n for given in first for n in ast.walk(given) if isinstance(n, ast.Name | ast.Attribute))
    texts = (n.attr if isinstance(n, ast.Attribute) else n.id for n in words)
    return any(part in text.lower() for text in texts for part in _OF_PARAMETERS)
