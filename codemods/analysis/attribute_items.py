"""What the items of a container hold that is an attribute of an object: `self.models["generator"]`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from codemods.analysis.holding import OTHER, Held, HeldSet, WrapCall
from codemods.analysis.module import Module

if TYPE_CHECKING:
    from codemods.analysis.link import Links


def items_held(links: Links, module: Module, container: ast.Attribute, key: ast.expr | None) -> HeldSet:
    """What is put into a container within its class.

    Args:
        container: the attribute as it is written where it is read.
        key: the item's key; None for any.
    """
    text, owner = ast.unparse(container), module.class_of(container)
    if owner is None or container in links.active:
        return frozenset()
    held: set[Held] = set()
    is_replaced = False
    links.active.add(container)
    try:
        for statement in (node for node in ast.walk(owner) if isinstance(node, ast.Assign)):
            for target in statement.targets:
                if isinstance(target, ast.Subscript) and ast.unparse(target.value) == text:
                    if _can_be(target.slice, key):
                        put = links.held(module, statement.value)
                        held |= put
                        is_replaced |= _has_wrap(put) and ast.unparse(target) in ast.unparse(statement.value)
                elif ast.unparse(target) == text and isinstance(statement.value, ast.Dict):
                    pairs = zip(statement.value.keys, statement.value.values, strict=True)
                    for name, value in pairs:
                        if name is None or _can_be(name, key):
                            held |= links.held(module, value)
    finally:
        links.active.discard(container)
    # `self.models[name] = wrap(self.models[name])`: what was there before is gone.
    return frozenset(held - {OTHER}) if is_replaced else frozenset(held)


def _can_be(one: ast.expr, other: ast.expr | None) -> bool:
    if isinstance(one, ast.Constant) and isinstance(other, ast.Constant):
        return one.value == other.value
    return True


def _has_wrap(held: HeldSet) -> bool:
    return any(isinstance(h, WrapCall) for h in held)
