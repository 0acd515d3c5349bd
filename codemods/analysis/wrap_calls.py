"""The calls that wrap with FSDP1, and the files in which they can be."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.enabled import ENABLE, WRAP
from codemods.analysis.holding import WrapCall
from codemods.analysis.index import Index
from codemods.analysis.meanings import Meanings
from codemods.analysis.module import Module
from codemods.analysis.scopes import BindingKind
from codemods.analysis.shelf import Shelf
from codemods.analysis.stars import Stars
from codemods.analysis.telling import tells_of_fsdp
from codemods.torch_names import FSDP, is_fsdp_namespace


def find_wraps(
    index: Index, meanings: Meanings, shelf: Shelf, modules: dict[str, Module]
) -> tuple[list[Module], list[WrapCall]]:
    """The modules that were looked through for wrap calls, and these."""
    index.may_have = Stars(shelf, index.locate).may_have
    naming: list[Module] = []
    wraps: list[WrapCall] = []
    while len(naming) != len(modules):  # following a name can read a module that no pattern announced
        seen = set(naming)
        new = [module for module in modules.values() if module not in seen]
        naming += new
        wraps += _wrap_calls(index, meanings, new)
        shelf.load(sorted({path for module in new for path in _taking(module, shelf)}))
    return naming, wraps


def _taking(module: Module, shelf: Shelf) -> Iterator[str]:
    """Files that may take one of FSDP's names from a module that imports it, under a name that does not tell
    of FSDP."""
    names = {
        alias.asname or alias.name
        for node in module.nodes(ast.ImportFrom)
        if isinstance(node, ast.ImportFrom) and is_fsdp_namespace(node.module or "") and not node.level
        for alias in node.names
    }
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and _may_be_foreign(module, node.value):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    for name in sorted(names):
        if not tells_of_fsdp(name.encode()):
            users = shelf.users(module.path)
            yield from (p for p in shelf.with_word(name) if p in users and shelf.may_name(p, name))


def _may_be_foreign(module: Module, value: ast.expr) -> bool:
    """Whether a value at the top of a module is a name, or of a name, that an import may bring."""
    while isinstance(value, ast.Attribute):
        value = value.value
    bindings = module.scope.bindings.get(value.id) if isinstance(value, ast.Name) else ()
    if bindings is None:  # of Python itself where there is no star import
        return bool(module.scope.star_imports)
    return any(binding.kind is not BindingKind.DEFINITION for binding in bindings)


def _enabling(index: Index, module: Module, call: ast.Call) -> ast.With | None:
    """The `with enable_wrap(...):` around a call, within its function."""
    for parent in module.ancestors(call):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return None
        if isinstance(parent, ast.With) and len(parent.items) == 1:
            item = parent.items[0].context_expr
            symbol = index.resolve(module, item.func) if isinstance(item, ast.Call) else None
            if symbol is not None and symbol.name == ENABLE:
                return parent
    return None


def _wrap_calls(index: Index, meanings: Meanings, modules: list[Module]) -> list[WrapCall]:
    found = []
    for module in modules:
        for call, symbol in meanings.calls(module):
            name = symbol.name
            if name == FSDP:
                found.append(WrapCall(module, call))
            elif name == WRAP:
                found.append(WrapCall(module, call, "wrap", _enabling(index, module, call)))
            elif name == "functools.partial" and call.args:
                made = index.resolve(module, call.args[0])
                if made is not None and made.name == FSDP:
                    found.append(WrapCall(module, call, "partial"))
        found += [site for call in module.calls() if (site := _choice(index, module, call)) is not None]
    return found


def _choice(index: Index, module: Module, call: ast.Call) -> WrapCall | None:
    """`(FSDP if distributed else Plain)(m, ...)`, where a class of the project takes whatever it is given."""
    if not isinstance(call.func, ast.IfExp):
        return None
    for arm, other in ((call.func.body, call.func.orelse), (call.func.orelse, call.func.body)):
        symbol, beside = index.resolve(module, arm), index.resolve(module, other)
        if (
            symbol is None
            or symbol.name != FSDP
            or beside is None
            or not isinstance(beside.node, ast.ClassDef)
        ):
            continue
        made = [m for m in beside.node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"]
        if any(method.args.kwarg is not None for method in made):
            return WrapCall(module, call, "choice", named=arm)
    return None
