"""Imports: how a name from elsewhere is spelled in a file, which imports are added, which have become unused."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from codemods.analysis.index import Index, Module
from codemods.analysis.scopes import Binding, BindingKind, Scope
from codemods.sources import SourceFile
from codemods.torch_names import canonical, is_fsdp_namespace

_MODULES = frozenset(
    {
        "torch",
        "torch.distributed",
        "torch.nn",
        "torch.distributed.checkpoint",
        "copy",
        "contextlib",
        "functools",
        "itertools",
        "dataclasses",
    }
)
_USUAL = {
    "torch.distributed": "dist",
    "torch.nn": "nn",
    "torch.distributed.checkpoint": "dcp",
}


@dataclass(frozen=True, slots=True, order=True)
class Needed:
    """An import to add: `from module import name as alias`, or `import module as alias` where name is empty.

    Attributes:
        function: qualified name of the function whose own FSDP import it joins; empty: at the top.
    """

    module: str
    name: str
    alias: str = ""
    function: str = ""


@dataclass(slots=True)
class Spelling:
    """Decides how names are spelled in one file, and remembers which imports that needs.

    Attributes:
        helper: what to import the helper module's names from, such as `.fsdp2_sharding`.
    """

    module: Module
    index: Index
    helper: str
    needed: set[Needed] = field(default_factory=set)
    helper_names: set[str] = field(default_factory=set)
    _taken: set[str] | None = None

    def spell(self, name: str, position: int) -> str:
        """The spelling of a dotted name at a text position."""
        if name.startswith("helper."):
            return self._helper(name.removeprefix("helper."), position)
        bound = self._bound_as(name)
        if bound is not None:
            return bound
        if name in _MODULES:
            return self._import_module(name)
        head, _, last = name.rpartition(".")
        if not is_fsdp_namespace(name) and (through := self._through_parent(name)) is not None:
            return through
        return self._import_from(head, last, position)

    def _helper(self, name: str, position: int) -> str:
        self.helper_names.add(name)
        return self._import_from(self.helper, name, position)

    def _bound_as(self, name: str) -> str | None:
        """A top-level binding that means exactly that name."""
        for local, bindings in self.module.scope.bindings.items():
            for binding in bindings:
                if binding.kind is BindingKind.IMPORT and canonical(binding.target) == name:
                    if len({b.kind for b in bindings}) == 1 and not _is_guarded(self.module, binding):
                        return local
        return None

    def _through_parent(self, name: str) -> str | None:
        """`torch.nn.utils.x` through an import of `torch` or `torch.nn`; `dist.x`; `functools.x`."""
        head, _, last = name.rpartition(".")
        parent = head
        rest = [last]
        while head:
            bound = self._bound_as(head)
            # A module inside torch.distributed need not be loaded because its parent is.
            is_loaded = head == parent or not head.startswith("torch.distributed")
            if bound is not None and is_loaded and (head == "torch" or head in _MODULES):
                if head == "torch" and name.startswith("torch.distributed."):
                    return None
                return ".".join([bound, *rest])
            head, _, last = head.rpartition(".")
            rest.insert(0, last)
        if name.startswith("torch.nn."):
            return self._import_module("torch.nn") + name.removeprefix("torch.nn")
        return None

    def _import_module(self, name: str) -> str:
        alias = _USUAL.get(name, "")
        if name == "torch.nn":
            torch = self._bound_as("torch")
            if torch:
                return f"{torch}.nn"
            self.needed.add(Needed("torch", "nn"))
            return "nn"
        if alias and alias in self._names():
            alias = alias if self._bound_as(name) else f"torch_{alias}"
        self.needed.add(Needed(name, "", alias))
        return alias or name

    def _import_from(self, module: str, name: str, position: int) -> str:
        ours = is_fsdp_namespace(module) or module == self.helper
        function = self._function_with_import(position) if ours else ""
        local = name
        if name in self._names() and not self._is_import_of(module, name):
            local = name if self._goes_away(name) else f"{name}_"
        self.needed.add(Needed(module, name, "" if local == name else local, function))
        return local

    def _names(self) -> set[str]:
        if self._taken is None:
            self._taken = {n for scope in self.module.table.scopes.values() for n in scope.bindings}
        return self._taken

    def _is_import_of(self, module: str, name: str) -> bool:
        return any(n.module == module and n.name == name for n in self.needed)

    def _goes_away(self, name: str) -> bool:
        """Whether every binding of a name is an import from torch's FSDP, so that a new import replaces it."""
        bindings = [b for s in self.module.table.scopes.values() for b in s.bindings.get(name, [])]
        return all(b.kind is BindingKind.IMPORT and is_fsdp_namespace(canonical(b.target)) for b in bindings)

    def _function_with_import(self, position: int) -> str:
        """The function around a position whose body imports from torch's FSDP, by qualified name."""
        for scope in self.module.table.scopes.values():
            if not isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            span = self.module.span(scope.node)
            if not span.start <= position < span.end:
                continue
            if any(
                b.kind is BindingKind.IMPORT and is_fsdp_namespace(canonical(b.target))
                for bound in scope.bindings.values()
                for b in bound
            ):
                return qualified(self.module, scope.node)
        return ""


def qualified(module: Module, node: ast.AST) -> str:
    """The dotted name of a function within its module."""
    names = [getattr(n, "name", "") for n in (node, *module.ancestors(node))]
    return ".".join(reversed([n for n in names if n]))


def _is_guarded(module: Module, binding: Binding) -> bool:
    """An import under TYPE_CHECKING is no import at run time."""
    return any(
        isinstance(parent, ast.If) and "TYPE_CHECKING" in ast.dump(parent.test)
        for parent in module.ancestors(binding.node)
    )


def settle_imports(
    source: SourceFile,
    before: Module,
    text: str,
    needed: Iterable[Needed],
    is_exported: Callable[[str], bool],
) -> str:
    """Remove imports whose last use went with the edits, and add the needed ones.

    Args:
        before: the file as it was.
        text: the file with the edits done, imports as they were.
        is_exported: whether another file still imports that name from here.

    Raises:
        SyntaxError: the edits left no valid Python.
    """
    after = Module(SourceFile(source.path, b"", text, source.encoding, source.newline))
    wanted = sorted(needed)
    gone = _newly_unused(before, after, is_exported) | _superseded(after, wanted)
    changes = _rewritten_imports(after, gone, wanted)
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new.replace("\n", source.newline) + text[end:]
    return text


def _newly_unused(
    before: Module, after: Module, is_exported: Callable[[str], bool]
) -> set[tuple[ast.AST, str]]:
    gone: set[tuple[ast.AST, str]] = set()
    exported = _dunder_all(after)
    for scope in after.table.scopes.values():
        for name, bindings in scope.bindings.items():
            for binding in bindings:
                if binding.kind is not BindingKind.IMPORT or _uses(after, scope, name):
                    continue
                at_top = scope is after.scope
                if at_top and (name in exported or is_exported(name)):
                    continue
                torch = is_fsdp_namespace(canonical(binding.target))
                if torch or _was_used(before, after, scope, name):
                    if not _is_kept_on_purpose(after, binding):
                        gone.add((binding.node, name))
    return gone


def _superseded(after: Module, needed: list[Needed]) -> set[tuple[ast.AST, str]]:
    """FSDP1 imports of names that the file now has from elsewhere."""
    names = {n.alias or n.name: n for n in needed if not is_fsdp_namespace(n.module)}
    return {
        (binding.node, name)
        for scope in after.table.scopes.values()
        for name in names.keys() & scope.bindings.keys()
        for binding in scope.bindings[name]
        if binding.kind is BindingKind.IMPORT and is_fsdp_namespace(canonical(binding.target))
    }


def _was_used(before: Module, after: Module, scope: Scope, name: str) -> bool:
    key = _scope_key(after, scope)
    return any(
        _uses(before, old, name)
        for old in before.table.scopes.values()
        if name in old.bindings and _scope_key(before, old) == key
    )


def _scope_key(module: Module, scope: Scope) -> tuple[str, ...]:
    nodes = [scope.node, *module.ancestors(scope.node)]
    return tuple(getattr(node, "name", type(node).__name__) for node in nodes)


def _uses(module: Module, scope: Scope, name: str) -> bool:
    for node in module.nodes(ast.Name):
        assert isinstance(node, ast.Name)
        if node.id == name and not isinstance(node.ctx, ast.Store):
            found = module.scope_of(node).lookup(name)
            if found is not None and found[0] is scope:
                return True
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and _names_type(module, node, name)
        for node in module.nodes(ast.Constant)
    )


def _names_type(module: Module, node: ast.Constant, name: str) -> bool:
    """Whether a string annotation names it."""
    if not re.search(rf"\b{re.escape(name)}\b", str(node.value)):
        return False
    child: ast.AST = node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.arg | ast.AnnAssign) and parent.annotation is child:
            return True
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef) and parent.returns is child:
            return True
        child = parent
    return False


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


def _rewritten_imports(
    module: Module, gone: set[tuple[ast.AST, str]], needed: list[Needed]
) -> list[tuple[int, int, str]]:
    """Text changes for import statements: names dropped, names joined to a statement of the same module, new lines."""
    changes: list[tuple[int, int, str]] = []
    waiting = list(needed)
    statements = [*module.nodes(ast.ImportFrom), *module.nodes(ast.Import)]
    by_node: dict[ast.AST, set[str]] = {}
    for node, name in gone:
        by_node.setdefault(node, set()).add(name)
    freed: list[tuple[ast.stmt, int]] = []
    for statement in statements:
        assert isinstance(statement, ast.ImportFrom | ast.Import)
        dropped = by_node.get(statement, set())
        joined = _joinable(module, statement, waiting)
        waiting = [n for n in waiting if n not in joined]
        if not dropped and not joined:
            continue
        kept = [a for a in statement.names if _local(a, statement) not in dropped]
        if not kept and not joined:
            freed.append((statement, len(changes)))
            changes.append(_without(module, statement))
        elif isinstance(statement, ast.ImportFrom):
            changes.append(_with_names(module, statement, kept, joined))
        else:
            span = module.span(statement)
            names = ", ".join(f"{a.name} as {a.asname}" if a.asname else a.name for a in kept)
            changes.append((span.start, span.end, f"import {names}"))
    changes.extend(_in_functions(module, [n for n in waiting if n.function]))
    changes.extend(_at_top(module, [n for n in waiting if not n.function], {s for s, _ in freed}))
    return changes


def _local(alias: ast.alias, statement: ast.stmt) -> str:
    return alias.asname or (alias.name.split(".")[0] if isinstance(statement, ast.Import) else alias.name)


def _joinable(module: Module, statement: ast.ImportFrom | ast.Import, waiting: list[Needed]) -> list[Needed]:
    if not isinstance(statement, ast.ImportFrom) or any(a.name == "*" for a in statement.names):
        return []
    source = "." * statement.level + (statement.module or "")
    function = module.function(statement)
    if function is None and not isinstance(module.parent(statement), ast.Module):
        return []
    where = qualified(module, function) if function is not None else ""
    return [n for n in waiting if n.name and n.module == source and n.function == where]


def _without(module: Module, statement: ast.stmt) -> tuple[int, int, str]:
    span = module.span(statement)
    parent = module.parent(statement)
    siblings: list[ast.stmt] = next(
        (
            b
            for b in (getattr(parent, n, None) for n in ("body", "orelse", "finalbody"))
            if b and statement in b
        ),
        [],
    )
    if len(siblings) == 1 and not isinstance(parent, ast.Module):
        return span.start, span.end, "pass"
    start, end = module.line_start(span.start), module.line_end(span.end)
    if module.text[start : span.start].strip() or module.text[span.end : end].strip():
        return span.start, span.end, "pass" if module.text[start : span.start].strip() else ""
    return start, end, ""


def _with_names(
    module: Module, statement: ast.ImportFrom, kept: list[ast.alias], joined: list[Needed]
) -> tuple[int, int, str]:
    span = module.span(statement)
    old = [_import_key(a.name) for a in statement.names]
    names = [(a.name, a.asname or "") for a in kept] + [(n.name, n.alias) for n in joined]
    if old == sorted(old) or not kept:
        names.sort(key=lambda pair: _import_key(pair[0]))
    shown = [f"{name} as {alias}" if alias else name for name, alias in dict.fromkeys(names)]
    text = module.text[span.start : span.end]
    head = text[: re.match(r"from\s+[.\w\s]+?\s+import\s*", text).end()].rstrip()  # type: ignore[union-attr]
    indent = " " * (span.start - module.line_start(span.start))
    multi_line = "\n" in text
    one_line = f"{head} {', '.join(shown)}"
    if not multi_line and len(indent) + len(one_line) <= 110 and "(" not in text:
        return span.start, span.end, one_line
    if multi_line and len(indent) + len(one_line) <= 79 and not kept:
        return span.start, span.end, one_line
    lines = "".join(f"{indent}    {name},\n" for name in shown)
    return span.start, span.end, f"{head} (\n{lines}{indent})"


def _import_key(name: str) -> tuple[int, str]:
    """isort's and ruff's default order: CONSTANTS, Classes, the rest."""
    if name.isupper() and len(name) > 1:
        return 0, name
    return (1 if name[:1].isupper() else 2), name


def _in_functions(module: Module, needed: list[Needed]) -> list[tuple[int, int, str]]:
    changes = []
    for wanted in needed:
        for kind in (ast.FunctionDef, ast.AsyncFunctionDef):
            for node in module.nodes(kind):
                assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                imports = [s for s in ast.walk(node) if isinstance(s, ast.ImportFrom | ast.Import)]
                fsdp = [s for s in imports if "fsdp" in module.code(s)]
                if qualified(module, node) == wanted.function and fsdp:
                    start = module.line_start(module.span(fsdp[0]).start)
                    indent = " " * (module.span(fsdp[0]).start - start)
                    changes.append((start, start, f"{indent}{_line(wanted)}\n"))
    return changes


def _line(wanted: Needed) -> str:
    alias = f" as {wanted.alias}" if wanted.alias else ""
    if not wanted.name:
        return f"import {wanted.module}{alias}"
    return f"from {wanted.module} import {wanted.name}{alias}"


def _at_top(module: Module, needed: list[Needed], freed: set[ast.stmt]) -> list[tuple[int, int, str]]:
    """New import statements in the group they belong to, in the order the file's imports are in."""
    grouped: dict[tuple[str, bool], list[Needed]] = {}
    for wanted in needed:
        grouped.setdefault((wanted.module, bool(wanted.name)), []).append(wanted)
    changes = []
    top = _top_imports(module)
    for (source, is_from), wanted_names in sorted(
        grouped.items(), key=lambda item: (_group(item[0][0]), item[0])
    ):
        if is_from:
            names = sorted(((n.name, n.alias) for n in wanted_names), key=lambda p: _import_key(p[0]))
            shown = [f"{n} as {a}" if a else n for n, a in names]
            line = f"from {source} import {', '.join(shown)}"
            if len(line) > 100:
                line = f"from {source} import (\n" + "".join(f"    {n},\n" for n in shown) + ")"
        else:
            line = _line(wanted_names[0])
        changes.append(_placed(module, top, source, line, is_from=is_from))
    return changes


def _top_imports(module: Module) -> list[ast.Import | ast.ImportFrom]:
    """The leading run of imports: up to the first definition or other code that is no guard or docstring."""
    found: list[ast.Import | ast.ImportFrom] = []
    for statement in module.tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            found.append(statement)
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            break
    return found


def _group(source: str) -> int:
    if source.startswith("."):
        return 4
    head = source.split(".")[0]
    if head == "__future__":
        return 0
    if head in sys.stdlib_module_names:
        return 1
    return 2 if head in ("torch", "transformers", "numpy") else 3


def _placed(
    module: Module, top: list[ast.Import | ast.ImportFrom], source: str, line: str, *, is_from: bool
) -> tuple[int, int, str]:
    own = _group(source)
    plain = [s for s in top if not (isinstance(s, ast.ImportFrom) and s.module == "__future__")]
    same = [s for s in plain if _group_of(s) == own]
    if own == 3 and not same:
        same = [s for s in plain if _group_of(s) == 2 and False]
    if same:
        after = [s for s in same if _order(s) <= (is_from, source.lower())]
        if after:
            end = module.line_end(module.span(after[-1]).end)
            lead = "" if module.text[:end].endswith(("\n", "\r")) else "\n"
            return end, end, f"{lead}{line}\n"
        start = module.line_start(module.span(same[0]).start)
        return start, start, f"{line}\n"
    earlier = [s for s in plain if _group_of(s) < own]
    if earlier:
        end = module.line_end(module.span(earlier[-1]).end)
        follows = module.text[end:].lstrip(" \t")
        return end, end, f"\n{line}\n" if follows.startswith(("\n", "\r")) or not follows else f"\n{line}\n\n"
    if plain:
        start = module.line_start(module.span(plain[0]).start)
        return start, start, f"{line}\n\n"
    return _without_imports(module, line)


def _order(statement: ast.Import | ast.ImportFrom) -> tuple[bool, str]:
    if isinstance(statement, ast.Import):
        return False, statement.names[0].name.lower()
    return True, ("." * statement.level + (statement.module or "")).lower()


def _group_of(statement: ast.Import | ast.ImportFrom) -> int:
    if isinstance(statement, ast.Import):
        return _group(statement.names[0].name)
    return _group("." * statement.level + (statement.module or ""))


def _without_imports(module: Module, line: str) -> tuple[int, int, str]:
    """After the docstring and `__future__` imports of a file that has no other import."""
    end = 0
    for statement in module.tree.body:
        is_doc = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if is_doc or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
            end = module.line_end(module.span(statement).end)
        else:
            break
    return end, end, f"\n{line}\n" if end else f"{line}\n\n"
