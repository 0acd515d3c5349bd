"""Imports of FSDP1 names that nothing uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import (
    Edit,
    Finding,
    Module,
    Project,
    Safety,
    annotation_words,
    delete,
    delete_aliases,
    finding,
    is_fsdp1_import,
    names_taken,
    rule,
)


@rule("unused import", {"FM518": "an import of an FSDP1 name that nothing uses"}, order=90)
def unused_import(project: Project) -> Iterator[Finding]:
    """An import of an FSDP1 name that its file does not use, and no other file takes from it, is removed.

    Imports that a rewrite leaves without a use go by themselves; this is about those that had none before.
    In an `__init__.py` and where `__all__` names it, an import is for others and stays, with a finding."""
    modules = project.with_takers({m.path: names for m in project.naming if (names := _fsdp1_names(m))})
    read = {module.path: _words(module) for module in modules}
    handed_on = names_taken(modules, project.index, lambda module: read[module.path])
    for module in modules:
        if module.path.endswith("__init__.py") or "__all__" in module.text:
            continue
        words = read[module.path]
        for node in module.nodes(ast.ImportFrom):
            assert isinstance(node, ast.ImportFrom)
            if isinstance(module.parent(node), ast.ClassDef):
                continue  # an attribute of the class
            unused = [
                a
                for a in node.names
                if is_fsdp1_import(node, a)
                and (a.asname or a.name) not in words
                and (module.path, a.asname or a.name) not in handed_on
            ]
            if not unused:
                continue
            edits: list[Edit] = []
            if len(unused) == len(node.names):
                edits = [delete(module, node)]
            else:
                edits = delete_aliases(module, node, unused)
            yield finding(
                module,
                node,
                "FM518",
                f"nothing uses {', '.join(f'`{a.name}`' for a in unused)}",
                safety=Safety.SAFE,
                edits=edits,
            )


def _fsdp1_names(module: Module) -> set[str]:
    return {
        alias.asname or alias.name
        for node in module.nodes(ast.ImportFrom)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if is_fsdp1_import(node, alias)
    }


def _words(module: Module) -> set[str]:
    """Names read anywhere in a file, string annotations included."""
    return module.words() | annotation_words(module)
