"""Classes that cannot become a unit's class.

Source: `torch/distributed/fsdp/_fully_shard/_fully_shard.py` (`module.__class__ = FSDP<Name>`), CPython's
`Objects/typeobject.c` (`compatible_for_assignment`: the classes that add `__dict__` need the same base)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from codemods.analysis.holding import Instance
from codemods.rule import Finding, Module, Project, finding, rule

_SLOTTED = ("abc.ABC", "typing.Generic", "typing.Protocol", "typing_extensions.Protocol")
_MODULES = ("torch.nn.Module", "torch.nn.modules.module.Module", "torch.nn.modules.Module")
_NO_LIBRARIES_OF_MODULES = sys.stdlib_module_names | {"builtins", "typing_extensions", "pydantic", "attr"}
_POLICIES = ("ModuleWrapPolicy", "partial")


@rule(
    "class layout",
    {"FM527": "a class that `fully_shard` cannot extend"},
    where={b"wrap_policy": b"", b"WrapPolicy": b"", b"transformer_layer_cls": b""},
)
def class_layout(project: Project) -> Iterator[Finding]:
    """`class Block(ABC, nn.Module)` cannot become a unit: "object layout differs".

    `fully_shard` gives a module a class of its own, derived from its old one. Python refuses where the first
    base, followed to its end, is `ABC`, `Generic[...]` or `Protocol`: those have no `__dict__` and so another
    layout. `class Block(nn.Module, ABC)` is fine. It fails too where `__init_subclass__` wants arguments.
    Said of classes that are wrapped or named in a policy."""
    sharded = _sharded_classes(project)
    for module in project.looked_at if project.wraps else ():
        for node in module.nodes(ast.ClassDef):
            assert isinstance(node, ast.ClassDef)
            if node not in sharded or not _may_be_module(project, module, node):
                continue
            if _starts_without_dict(project, module, node):
                yield finding(
                    module,
                    node,
                    "FM527",
                    f"`fully_shard` cannot change the class of a `{node.name}`: the first of its bases has "
                    "another layout",
                    remedy="name `nn.Module` first among the bases",
                )
            elif _wants_arguments(node):
                yield finding(
                    module,
                    node,
                    "FM527",
                    f"`fully_shard` cannot derive from `{node.name}`: `__init_subclass__` wants arguments",
                    remedy="give the arguments of `__init_subclass__` default values",
                )


def _sharded_classes(project: Project) -> set[ast.AST]:
    """Classes of the project whose objects are wrapped, or that a policy names."""
    found: set[ast.AST] = set()
    for site in project.wraps:
        held = project.links.held(site.module, site.wrapped) if site.wrapped is not None else ()
        found |= {h.node for h in held if isinstance(h, Instance)}
    for module in project.looked_at:
        for call in module.calls():
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if name not in _POLICIES:
                continue
            for part in (n for n in ast.walk(call) if isinstance(n, ast.Name | ast.Attribute)):
                symbol = project.resolve(module, part)
                if symbol is not None and isinstance(symbol.node, ast.ClassDef):
                    found.add(symbol.node)
    return found


def _may_be_module(project: Project, module: Module, node: ast.ClassDef) -> bool:
    """Whether a class can derive from `nn.Module`: by what the project says, or by a base of a library."""
    waiting, seen = [(module, node)], set[ast.AST]()
    while waiting:
        home, one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        for base in one.bases:
            symbol = project.resolve(home, base.value if isinstance(base, ast.Subscript) else base)
            if symbol is not None and symbol.module is not None:
                if isinstance(symbol.node, ast.ClassDef):
                    waiting.append((symbol.module, symbol.node))
            elif symbol is None or symbol.name.partition(".")[0] not in _NO_LIBRARIES_OF_MODULES:
                return True
    return False


def _starts_without_dict(project: Project, module: Module, node: ast.ClassDef) -> bool:
    """Whether the first base, its first base and so on ends in a class without `__dict__`."""
    home, seen = module, set[ast.AST]()
    while node.bases and node not in seen:
        seen.add(node)
        base = node.bases[0]
        symbol = project.resolve(home, base.value if isinstance(base, ast.Subscript) else base)
        if symbol is None:
            return False
        if symbol.name in _SLOTTED:
            return True
        if symbol.name in _MODULES or symbol.module is None or not isinstance(symbol.node, ast.ClassDef):
            return False
        home, node = symbol.module, symbol.node
    return False


def _wants_arguments(node: ast.ClassDef) -> bool:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init_subclass__":
            required = len(statement.args.args) - 1 - len(statement.args.defaults)
            keywords = [d for d in statement.args.kw_defaults if d is None]
            return required > 0 or bool(keywords)
    return False
