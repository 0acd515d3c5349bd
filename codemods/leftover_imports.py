"""Imports of FSDP1 names that the file itself does not use, or uses as one of two things. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.module import Module
from codemods.analysis.scopes import BindingKind, Scope
from codemods.editing.code import delete, finding
from codemods.editing.removal import delete_aliases
from codemods.editing.statements import annotation_words
from codemods.leftover_words import CODE, is_gone, is_spoken_of, left_name
from codemods.model import Edit, Finding, Safety
from codemods.project import Project
from codemods.shared_types import WRAP_TYPES, shared_type
from codemods.torch_names import canonical, is_fsdp1, is_fsdp_namespace

UNUSED = "FM518"


def unread_imports(
    project: Project,
    module: Module,
    edits: dict[str, list[tuple[Edit, Finding]]],
    spoken: set[tuple[str, int]],
) -> Iterator[Finding]:
    """Imports of FSDP1 names that the file itself does not use: handed on to other files, or forgotten."""
    names: set[str] | None = None
    for node in module.nodes(ast.ImportFrom):
        assert isinstance(node, ast.ImportFrom)
        source = node.module or ""
        if node.level or not is_fsdp_namespace(source) or is_gone(module, node, edits):
            continue
        if names is None:
            names = {n.id for n in module.nodes(ast.Name) if isinstance(n, ast.Name)}
            names |= annotation_words(module)
        untaken: list[ast.alias] = []
        for alias in node.names:
            name = canonical(f"{source}.{alias.name}")
            if alias.name == "*" or not is_fsdp1(name) or is_gone(module, alias, edits):
                continue
            is_attribute = isinstance(module.parent(node), ast.ClassDef)
            if (alias.asname or alias.name) in names and not is_attribute:
                if _is_defined_anew(module, node, alias):
                    yield left_name(module, node, name)
                elif not is_understood(project, module, alias, name):
                    yield from _several(project, module, node, alias, name, spoken)
                continue
            uses = [use for use in project.uses(name) if use.module is not module]
            if uses and all(is_gone(use.module, use.node, edits) for use in uses):
                untaken.append(alias)
            elif not is_spoken_of(module, node, spoken):
                spoken.add((module.path, module.place(node).line))
                yield left_name(module, node, name)
        if untaken:
            yield _no_longer_taken(module, node, untaken)


def _is_defined_anew(module: Module, node: ast.ImportFrom, alias: ast.alias) -> bool:
    """Whether a `def` or `class` further down at the top of the module has the name instead."""
    local = alias.asname or alias.name
    return module.parent(node) is module.tree and any(
        isinstance(other, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and other.name == local
        for other in module.tree.body[module.tree.body.index(node) :]
    )


def is_understood(project: Project, module: Module, alias: ast.alias, name: str) -> bool:
    """Whether some use of the imported name is known to be FSDP1's."""
    local = alias.asname or alias.name
    uses = (use.node for use in project.uses(name) if use.module is module)
    return any(isinstance(node, ast.Name) and node.id == local for node in uses)


def _several(
    project: Project,
    module: Module,
    node: ast.ImportFrom,
    alias: ast.alias,
    name: str,
    spoken: set[tuple[str, int]],
) -> Iterator[Finding]:
    """A name that is imported as one of two things, and its uses.

    Only said where the other is FSDP2's; wrap calls that take values of the type stay all the same. The
    wrapper itself is left to a person, because its calls are not found then.
    """
    local, short = alias.asname or alias.name, name.rpartition(".")[2]
    scope, others = alternatives(module, node, local, name)
    if scope is None or not others:
        return
    uses = [
        use
        for use in module.nodes(ast.Name)
        if isinstance(use, ast.Name) and use.id == local and _scope_of(module, use) is scope
    ]
    for place in (node, *uses):
        if is_spoken_of(module, place, spoken):
            continue
        spoken.add((module.path, module.place(module.statement(place)).line))
        if all(
            is_fsdp1(other) or is_fsdp_namespace(other.rpartition(".")[0]) for other in others
        ) and not any(map(is_for_fsdp2, others)):
            yield left_name(module, place, name)
            continue
        yield finding(
            module,
            place,
            CODE,
            f"`{local}` is FSDP1's `{short}` or `{others[0].rpartition('.')[2]}`, and stays",
            remedy="import one of them alone where no FSDP1 model is made any more, and rewrite again",
            is_note=short != "FullyShardedDataParallel" and any(map(is_for_fsdp2, others)),
            shares={shared_type(project, module, short)} if short in WRAP_TYPES.values() else set(),
        )


def alternatives(
    module: Module, node: ast.ImportFrom, local: str, name: str
) -> tuple[Scope | None, list[str]]:
    """The scope in which an import binds a name, and what else that is imported as in it."""
    for scope in dict.fromkeys(module.table.homes.values()):
        bindings = [b for b in scope.bindings.get(local, ()) if b.kind is BindingKind.IMPORT]
        if any(binding.node is node for binding in bindings):
            return scope, sorted({canonical(binding.target) for binding in bindings} - {name})
    return None, []


def is_for_fsdp2(name: str) -> bool:
    """Whether something is what FSDP2 has, or is used with, in the place of a name of FSDP1's."""
    is_own = is_fsdp_namespace(name) and not is_fsdp1(name)
    return is_own or (name.startswith("torch.") and name.endswith(".GradScaler"))


def _scope_of(module: Module, use: ast.Name) -> Scope | None:
    found = module.scope_of(use).lookup(use.id)
    return found[0] if found is not None else None


def _no_longer_taken(module: Module, node: ast.ImportFrom, aliases: list[ast.alias]) -> Finding:
    if len(aliases) == len(node.names):
        edits = [delete(module, node)]
    else:
        edits = delete_aliases(module, node, aliases)
    names = ", ".join(f"`{alias.asname or alias.name}`" for alias in aliases)
    message = f"no other file takes {names} from here any more"
    return finding(module, node, UNUSED, message, safety=Safety.SAFE, edits=edits)
