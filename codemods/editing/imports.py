"""Imports after the edits: those that have become unused go, those that are needed come."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from codemods.analysis.flow import imported_by
from codemods.analysis.module import Module
from codemods.analysis.scopes import Binding, BindingKind, Scope
from codemods.editing.drafts import draft_of
from codemods.editing.import_lines import rewritten_imports
from codemods.editing.shared_lines import apart, on_lines_of_their_own
from codemods.editing.spelling import FOR_TYPES, Needed, Spelling, qualified
from codemods.editing.statements import is_annotation
from codemods.torch_names import canonical, gives_way, is_fsdp_namespace, public_names_of


def settle_imports(
    before: Module, after: Module, spelling: Spelling, is_exported: Callable[[str], bool]
) -> str:
    """Remove imports whose last use went with the edits, and add the needed ones.

    Args:
        before: the file as it was.
        after: the file with the edits done, imports as they were.
        spelling: what the edits named, and so need imported.
        is_exported: whether another file still imports that name from here.

    Raises:
        SyntaxError: the edits left no valid Python.
    """
    # What is imported at the top is not imported again in a function: it would make the name the function's
    # own, which other places in it are reached without.
    everywhere = {need for need in spelling.needed if not need.function}
    inside = {n for n in spelling.needed if replace(n, function="") not in everywhere}
    uses = _Uses(after)  # what an edit named can have gone with an assignment that nothing reads
    wanted = sorted(n for n in everywhere | inside | spelling.shadowed if uses.names(_local_name(n)))
    gone = _gone(before, after, spelling, is_exported)
    alone = draft_of(after, on_lines_of_their_own(after, {node for node, _ in gone}))
    if alone is not after:
        after = alone
        gone = _gone(before, after, spelling, is_exported)
    while gone or wanted:
        changes = rewritten_imports(after, gone, wanted, spelling.is_ours, spelling.width)
        new = after.text
        for start, end, line in reversed(apart(after.text, changes)):
            new = new[:start] + line.replace("\n", before.source.newline) + new[end:]
        if new == after.text:
            break
        wanted = []
        # A gate that went with the imports in it can have been the last to use another import.
        after = draft_of(after, new)
        gone = _newly_unused(before, after, is_exported)
    return after.text


def _local_name(needed: Needed) -> str:
    return needed.alias or needed.name or needed.module.partition(".")[0]


def _gone(
    before: Module, after: Module, spelling: Spelling, is_exported: Callable[[str], bool]
) -> set[tuple[ast.AST, str]]:
    gone = _newly_unused(before, after, is_exported) | _superseded(after, spelling)
    return gone | _needless_stars(after, {n.alias or n.name for n in spelling.needed}, is_exported)


def _newly_unused(
    before: Module, after: Module, is_exported: Callable[[str], bool]
) -> set[tuple[ast.AST, str]]:
    gone: set[tuple[ast.AST, str]] = set()
    exported = _dunder_all(after)
    now, then = _Uses(after), _Uses(before)
    for scope in after.scopes():
        if isinstance(scope.node, ast.ClassDef):
            continue  # an attribute, for whoever has the class
        for name, bindings in scope.bindings.items():
            for binding in bindings:
                if binding.kind is not BindingKind.IMPORT or now.has(scope, name, binding):
                    continue
                at_top = scope is after.scope
                if at_top and (name in exported or is_exported(name)):
                    continue
                torch = is_fsdp_namespace(canonical(binding.target))
                lost = torch or _was_used(then, now, scope, name)
                if lost and not _is_kept_on_purpose(after, binding):
                    gone.add((binding.node, name))
    return gone


def _superseded(after: Module, spelling: Spelling) -> set[tuple[ast.AST, str]]:
    """FSDP1 imports of names that the same scope now has from elsewhere."""
    ours = [n for n in spelling.needed if not is_fsdp_namespace(n.module)]
    everywhere = {n.alias or n.name for n in ours if not n.function}
    found: set[tuple[ast.AST, str]] = set()
    for_types = {n.alias or n.name for n in ours if n.function == FOR_TYPES}
    for scope in after.scopes():
        names = everywhere | for_types if scope is after.scope else set(everywhere)
        if isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
            where = qualified(after, scope.node)
            names |= {n.alias or n.name for n in ours if n.function == where}
        for name in names & scope.bindings.keys():
            for binding in scope.bindings[name]:
                target = canonical(binding.target)
                if binding.kind is BindingKind.IMPORT and (
                    gives_way(target, name) or (binding.target, name) in spelling.superseded
                ):
                    found.add((binding.node, name))
    return found


def _needless_stars(
    after: Module, imported: set[str], is_exported: Callable[[str], bool]
) -> set[tuple[ast.AST, str]]:
    """Star imports of FSDP1's modules that nothing needs any more."""
    stars: dict[ast.AST, frozenset[str]] = {
        node: public_names_of(node.module or "")
        for node in after.nodes(ast.ImportFrom)
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and not node.level
    }
    if not any(stars.values()):
        return set()
    free = {
        node.id
        for node in after.nodes(ast.Name)
        if isinstance(node, ast.Name) and after.scope_of(node).lookup(node.id) is None
    }
    return {
        (node, "*")
        for node, offered in stars.items()
        if offered and not offered & (free - imported) and not any(is_exported(name) for name in offered)
    }


def _was_used(then: _Uses, now: _Uses, scope: Scope, name: str) -> bool:
    key = _scope_key(now.module, scope)
    return any(
        then.has(old, name)
        for old in then.module.scopes()
        if name in old.bindings and _scope_key(then.module, old) == key
    )


def _scope_key(module: Module, scope: Scope) -> tuple[str, ...]:
    nodes = [scope.node, *module.ancestors(scope.node)]
    return tuple(getattr(node, "name", type(node).__name__) for node in nodes)


class _Uses:
    """Where a module uses names; texts are looked through once for all of them."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._texts: list[tuple[ast.Constant, str]] | None = None

    def has(self, scope: Scope, name: str, binding: Binding | None = None) -> bool:
        """Whether a name of a scope is used anywhere, string annotations included.

        Args:
            binding: the one that has to be meant; any if None.
        """
        return any(
            (found := self.module.scope_of(node).lookup(name)) is not None
            and found[0] is scope
            and (binding is None or binding in imported_by(self.module, scope, name, node))
            for node in self._nodes(name)
        )

    def names(self, name: str) -> bool:
        """Whether a name is used anywhere, whatever binds it."""
        return next(self._nodes(name), None) is not None

    def _nodes(self, name: str) -> Iterator[ast.expr]:
        for node in self.module.named(name):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
                yield node
        for constant, text in self._strings():
            if (
                name in text
                and re.search(rf"\b{re.escape(name)}\b", text)
                and is_annotation(self.module, constant)
            ):
                yield constant

    def _strings(self) -> list[tuple[ast.Constant, str]]:
        if self._texts is None:
            constants = [n for n in self.module.nodes(ast.Constant) if isinstance(n, ast.Constant)]
            self._texts = [(n, n.value) for n in constants if isinstance(n.value, str)]
        return self._texts


def _dunder_all(module: Module) -> set[str]:
    names: set[str] = set()
    for binding in module.scope.bindings.get("__all__", []):
        if isinstance(binding.value, ast.List | ast.Tuple):
            names |= {
                e.value
                for e in binding.value.elts
                if isinstance(e, ast.Constant) and isinstance(e.value, str)
            }
    return names


def _is_kept_on_purpose(module: Module, binding: Binding) -> bool:
    """`# noqa` says that an unused import is meant."""
    span = module.span(binding.node)
    return "noqa" in module.text[span.start : module.line_end(span.end)]
