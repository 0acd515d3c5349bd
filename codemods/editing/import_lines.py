"""Import statements as text: names dropped and joined, new lines put where the file would have them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from codemods.analysis.module import Module
from codemods.editing.emptied_blocks import is_gated, outside_gate, removals, stand_ins, with_gates
from codemods.editing.import_groups import ImportGroups, import_order, is_docstring, leading_imports
from codemods.editing.spelling import FOR_TYPES, Needed, is_for_types, qualified
from codemods.torch_names import is_fsdp_namespace


def rewritten_imports(
    module: Module,
    gone: set[tuple[ast.AST, str]],
    needed: list[Needed],
    is_ours: Callable[[str], bool],
    width: int,
) -> list[tuple[int, int, str]]:
    """Text changes for import statements: names dropped, names joined to a statement of the same module, new
    lines.

    Args:
        gone: import statement and local name of what is dropped.
        needed: what is added.
        is_ours: whether a dotted name is a module of the project.
        width: columns a line may have.
    """
    changes: list[tuple[int, int, str]] = []
    waiting = list(needed)
    dropped_of: dict[ast.AST, set[str]] = {}
    for node, name in gone:
        dropped_of.setdefault(node, set()).add(name)
    freed: list[ast.stmt] = []
    for statement in (*module.nodes(ast.ImportFrom), *module.nodes(ast.Import)):
        assert isinstance(statement, ast.ImportFrom | ast.Import)
        dropped = dropped_of.get(statement, set())
        joined = _joinable(module, statement, waiting, is_ours)
        waiting = [n for n in waiting if n not in joined]
        if not dropped and not joined:
            continue
        kept = [a for a in statement.names if _local(a, statement) not in dropped]
        if not kept and not joined:
            freed.append(statement)
        elif isinstance(statement, ast.ImportFrom):
            changes.append(_with_names(module, statement, kept, joined, width))
        else:
            span = module.span(statement)
            names = ", ".join(f"{a.name} as {a.asname}" if a.asname else a.name for a in kept)
            changes.append((span.start, span.end, f"import {names}"))
    groups = ImportGroups(module, is_ours, width, leading_imports(module))
    gates = with_gates(module, [*freed, *stand_ins(module, gone)])
    if any(n.function == FOR_TYPES for n in waiting):  # that branch stays for what comes into it
        gates = {s: s if _function_name(module, s) == FOR_TYPES else gate for s, gate in gates.items()}
    in_functions, replaced = _in_functions(module, [n for n in waiting if n.function], gates, is_ours, width)
    at_top, replaced_at_top = groups.placed([n for n in waiting if not n.function], freed)
    changes += [*in_functions, *at_top]
    going = removals(module, set(gates.values()) - {*replaced, *replaced_at_top})
    return [*changes, *_closed_up(module, going, {start for start, _, _ in changes})]


def _closed_up(
    module: Module, removed: list[tuple[int, int, str]], written_at: set[int]
) -> list[tuple[int, int, str]]:
    """Lines that go one below the other go as one, with one of the blank lines that stood around them.

    Args:
        written_at: where new text comes; it parts what goes above it from what goes below.
    """
    runs: list[list[tuple[int, int, str]]] = []
    for change in sorted(removed):
        last = runs[-1][-1] if runs else None
        if last is not None and last[1] == change[0] not in written_at and not last[2] + change[2]:
            runs[-1].append(change)
        else:
            runs.append([change])
    return [run[0] if len(run) == 1 else _with_blank_line(module, run[0][0], run[-1][1]) for run in runs]


def _with_blank_line(module: Module, start: int, end: int) -> tuple[int, int, str]:
    above = module.line_start(start - 1) if start else start
    below = module.line_end(end)
    has_blanks = start and below > end and not (module.text[above:start] + module.text[end:below]).strip()
    if not has_blanks:
        return start, end, ""
    is_import = module.text[below:].lstrip().startswith(("import ", "from "))
    return (start, below, "") if is_import else (above, end, "")


def _local(alias: ast.alias, statement: ast.stmt) -> str:
    return alias.asname or (alias.name.split(".")[0] if isinstance(statement, ast.Import) else alias.name)


def _joinable(
    module: Module,
    statement: ast.ImportFrom | ast.Import,
    waiting: list[Needed],
    is_ours: Callable[[str], bool],
) -> list[Needed]:
    if not isinstance(statement, ast.ImportFrom) or any(a.name == "*" for a in statement.names):
        return []
    source = "." * statement.level + (statement.module or "")
    function, where = module.function(statement), _function_name(module, statement)
    if not where and not isinstance(module.parent(statement), ast.Module):
        return []
    is_sharding = is_fsdp_namespace(source) or is_ours(source)
    if function is not None and not is_sharding and not _is_direct(module, statement):
        return []  # other branches do not see it
    if is_gated(module, statement):
        return []  # it would be imported in one branch, and used in both
    if all(a.asname for a in statement.names) and not _mixes_aliases(module):
        return []  # the file gives imports with `as` lines of their own
    return [n for n in waiting if n.name and n.module == source and n.function == where]


def _mixes_aliases(module: Module) -> bool:
    """Whether some import statement of the file has names with and without `as`."""
    for node in module.nodes(ast.ImportFrom):
        assert isinstance(node, ast.ImportFrom)
        if len({bool(a.asname) for a in node.names}) == 2:
            return True
    return False


def _with_names(
    module: Module,
    statement: ast.ImportFrom,
    kept: list[ast.alias],
    joined: list[Needed],
    width: int,
) -> tuple[int, int, str]:
    span = module.span(statement)
    old = [import_order(a.name) for a in statement.names]
    names = [(a.name, a.asname or "") for a in kept] + [(n.name, n.alias) for n in joined]
    if old == sorted(old) or not kept:
        names.sort(key=lambda pair: import_order(pair[0]))
    shown = [f"{name} as {alias}" if alias else name for name, alias in dict.fromkeys(names)]
    text = module.text[span.start : span.end]
    head = text[: re.match(r"from\s+[.\w\s]+?\s+import\s*", text).end()].rstrip()  # type: ignore[union-attr]
    indent = " " * (span.start - module.line_start(span.start))
    multi_line = "\n" in text or "\r" in text
    one_line = f"{head} {', '.join(shown)}"
    if not multi_line and len(indent) + len(one_line) <= width and "(" not in text:
        return span.start, span.end, one_line
    if multi_line and len(indent) + len(one_line) <= 79 and not kept:
        return span.start, span.end, one_line
    lines = "".join(f"{indent}    {name},\n" for name in shown)
    return span.start, span.end, f"{head} (\n{lines}{indent})"


def _in_functions(
    module: Module,
    needed: list[Needed],
    gates: dict[ast.stmt, ast.stmt],
    is_ours: Callable[[str], bool],
    width: int,
) -> tuple[list[tuple[int, int, str]], list[ast.stmt]]:
    """Imports for functions that import FSDP themselves: in place of one that goes and among those beside it,
    or before the first statement.

    Args:
        gates: import statement that goes -> the statement around it that goes with it.
    """
    changes: list[tuple[int, int, str]] = []
    taken: list[ast.stmt] = []
    for function in dict.fromkeys(item.function for item in needed):
        items = [item for item in needed if item.function == function]
        own = [gate for s, gate in gates.items() if _function_name(module, s) == function]
        own = [gate for gate in own if _is_direct(module, gate)] or own
        statements = own or _places(module, function)
        place = outside_gate(module, min(statements, key=lambda s: module.span(s).start))
        span = module.span(place)
        before = module.text[module.line_start(span.start) : span.start]
        indent = before if not before.strip() else ""
        run = _run(module, place) if indent else []
        groups = ImportGroups(module, is_ours, width, run, indent)
        if run:
            new, replaced = groups.placed(items, [s for s in run if gates.get(s) is s])
            changes += new
            taken += replaced
        elif place in own:  # and not in a gate that stays for what else it imports
            taken.append(place)
            after = module.text[module.line_end(span.end) :].partition("\r")[0].partition("\n")[0]
            is_followed = isinstance(place, ast.If | ast.Try) and after.strip()
            # Formatters want a blank line after imports.
            changes.append((span.start, span.end, groups.together(items) + ("\n" if is_followed else "")))
        else:
            changes.append((span.start, span.start, f"{groups.together(items)}\n\n{indent}"))
    return changes, taken


def _run(module: Module, place: ast.stmt) -> list[ast.Import | ast.ImportFrom]:
    """The imports of a block that stand one below the other, one of them given; none for anything else."""
    block = module.block(place)
    found: list[ast.Import | ast.ImportFrom] = []
    for statement in block:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            found.append(statement)
        elif place in found:
            break
        else:
            found = []
    return found if place in found else []


def _is_direct(module: Module, statement: ast.stmt) -> bool:
    """Whether a statement stands in a function's body itself, where everything below comes after it."""
    return module.parent(statement) is module.function(statement)


def _places(module: Module, function: str) -> list[ast.stmt]:
    """Where a function can take an import: at its imports, or else at its first statement."""
    inside = [s for s in module.statements() if _function_name(module, s) == function]
    for kind in (ast.ImportFrom, ast.Import):
        imports: list[ast.stmt] = [s for s in inside if isinstance(s, kind) and _is_direct(module, s)]
        if imports:
            return imports
    return [s for s in inside if not is_docstring(s)] or inside


def _function_name(module: Module, node: ast.AST) -> str:
    function = module.function(node)
    if function is None:
        return FOR_TYPES if is_for_types(module, node) else ""
    return qualified(module, function)
