"""FSDP1's configuration types that a gate imports under the name that FSDP2's have in its other branch. Pure.

    if version == 2:
        from torch.distributed.fsdp import MixedPrecisionPolicy as MixedPrecision
    else:
        from torch.distributed.fsdp import MixedPrecision

What is made of such a name, asked about and given to a wrap call is FSDP1's only where the latter ran; that
import alone becomes one of the helper module's type of the same name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.analysis.module import Module
from codemods.analysis.scopes import BindingKind, Scope
from codemods.leftover_imports import alternatives, is_for_fsdp2
from codemods.rule import Code, Edit, code, delete_aliases, insert_before, replace, stands_alone
from codemods.torch_names import canonical

_NO_COUNTERPART = "keep_low_precision_grads"


@dataclass(frozen=True, slots=True, eq=False)
class GatedType:
    """FSDP1's side of one gate.

    Attributes:
        node, alias: the import statement, and the name in it.
        name: canonical: `torch.distributed.fsdp.MixedPrecision`.
        scope: where the gate binds the name.
    """

    module: Module
    node: ast.ImportFrom
    alias: ast.alias
    name: str
    scope: Scope

    @property
    def local(self) -> str:
        """What the file calls the type."""
        return self.alias.asname or self.alias.name

    def binds(self, node: ast.expr) -> bool:
        """Whether a name is one of the gate's."""
        if not isinstance(node, ast.Name) or node.id != self.local:
            return False
        found = self.module.scope_of(node).lookup(node.id)
        return found is not None and found[0] is self.scope

    def uses(self) -> list[ast.Name]:
        """Where the file names what the gate imports."""
        return [n for n in self.module.named(self.local) if isinstance(n, ast.Name) and self.binds(n)]

    def edits(self) -> list[Edit]:
        """The import of the helper module's type in its place."""
        name = self.name.rpartition(".")[2]
        renamed = f" as {self.local}" if self.local != name else ""
        line: Code = code(None, "{helper.import." + name + "}") + ((renamed,) if renamed else ())
        if len(self.node.names) == 1:
            return [replace(self.module, self.node, line)]
        kept = delete_aliases(self.module, self.node, [self.alias])
        return [insert_before(self.module, self.node, line), *kept]


def gated_types(module: Module, name: str) -> list[GatedType]:
    """FSDP1's side of every gate that imports a type and what FSDP2 has in its place under one name.

    Args:
        name: canonical: `torch.distributed.fsdp.MixedPrecision`.
    """
    found = list(_sides(module, name))
    replaceable = {gated.node for gated in found if _is_replaceable(gated)}
    return [
        gated
        for gated in found
        if all(
            binding.kind is BindingKind.IMPORT
            and (binding.node in replaceable or is_for_fsdp2(canonical(binding.target)))
            for binding in gated.scope.bindings[gated.local]
        )
    ]


def _sides(module: Module, name: str) -> Iterator[GatedType]:
    for node in module.nodes(ast.ImportFrom):
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names if not node.level else ():
            if canonical(f"{node.module}.{alias.name}") != name:
                continue
            scope, others = alternatives(module, node, alias.asname or alias.name, name)
            if scope is not None and others and all(map(is_for_fsdp2, others)):
                yield GatedType(module, node, alias, name, scope)


def _is_replaceable(gated: GatedType) -> bool:
    """Whether its import can become another, and no use says what only FSDP1's type can be told."""
    module, node = gated.module, gated.node
    if isinstance(gated.scope.node, ast.ClassDef) or not (len(node.names) == 1 or stands_alone(module, node)):
        return False
    calls = [parent for use in gated.uses() if isinstance(parent := module.parent(use), ast.Call)]
    return not any(keyword.arg == _NO_COUNTERPART for call in calls for keyword in call.keywords)
