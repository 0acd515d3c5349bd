"""FSDP1 names that no rule spoke of: each still gets a finding, so that nothing is left over in silence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from codemods.analysis.attribute_questions import is_read_where_met
from codemods.analysis.conditions import conditions
from codemods.analysis.enabled import ENABLE, WRAP, calls_function, wrapper_of
from codemods.analysis.holding import Instance
from codemods.analysis.module import Module
from codemods.analysis.scopes import BindingKind
from codemods.dual_stack.elsewhere import fsdp1_branches
from codemods.editing import todo
from codemods.editing.code import finding
from codemods.editing.statements import is_annotation
from codemods.leftover_imports import unread_imports
from codemods.leftover_words import CODE, header, is_gone, is_spoken_of, left_name
from codemods.model import Edit, Finding, Outcome, Reported
from codemods.own_attributes import own_attributes
from codemods.project import Project
from codemods.torch_names import FSDP, is_fsdp1, is_fsdp1_import, is_fsdp_namespace

_WORD = re.compile(r"[A-Za-z_][\w.]*")
UNMISTAKABLE = frozenset(
    {"_all_handles", "_flat_param", "_fsdp_wrapped_module", "_fully_sharded_module_to_handle", "flat_param"}
    | {
        "flatten_sharded_optim_state_dict",
        "fsdp_modules",
        "full_optim_state_dict",
        "optim_state_dict_to_load",
    }
    | {"rekey_optim_state_dict", "scatter_full_optim_state_dict", "set_state_dict_type"}
    | {"shard_full_optim_state_dict", "sharded_optim_state_dict", "summon_full_params"}
)
"""Attributes that no other library has."""
_UNMISTAKABLE_TEXT = re.compile("|".join(sorted(UNMISTAKABLE)) + "|FullyShardedDataParallel")
_METHODS = frozenset(name for name in UNMISTAKABLE if not name.startswith("_") and name != "flat_param")


def left_over(
    project: Project,
    reported: Iterable[Reported],
    edits: dict[str, list[tuple[Edit, Finding]]],
    switched_off: Iterable[Finding] = (),
) -> Iterator[Finding]:
    """A finding for every use of an FSDP1 name that stays and at whose statement nothing else is said.

    Args:
        edits: those that are applied, by file.
        switched_off: findings that the user does not want; names that these speak of or would have replaced
            are not wanted either.
    """
    spoken = {(r.finding.place.path, r.finding.place.line) for r in reported if r.outcome is not Outcome.DONE}
    spoken |= set(_spoken_by_todos(project))
    edits = {path: list(found) for path, found in edits.items()}
    for off in switched_off:
        spoken.add((off.place.path, off.place.line))
        for edit in off.edits:
            edits.setdefault(edit.path, []).append((edit, off))
    is_given_another, wraps = _calls_no_wrapper(project, edits), _wraps(project)
    for name in project.used_names():
        if not is_fsdp1(name):
            continue
        for use in project.uses(name):
            module, node = use.module, use.node
            if name in (ENABLE, WRAP) and is_given_another:
                if not is_gone(module, node, edits) or _is_kept(module, node, edits):
                    yield _stays(module, node, name)
                continue
            if _is_variable(module, node, name) or _is_inner(project, module, node):
                continue
            if is_gone(module, node, edits) or is_spoken_of(module, node, spoken):
                continue
            if _is_import_gone(module, node, edits):
                continue
            spoken.add((module.path, module.place(module.statement(node)).line))
            yield _in_branch(project, module, node) or left_name(module, node, name, wraps=wraps)
    own = own_attributes(project, UNMISTAKABLE - _METHODS)
    for module in project.naming:
        yield from _in_text(project, module, edits, spoken, wraps=wraps)
        yield from unread_imports(project, module, edits, spoken)
        if _UNMISTAKABLE_TEXT.search(module.text):
            yield from _unmistakable(project, module, edits, spoken, own)


def _wraps(project: Project) -> bool:
    """Whether anything is wrapped with FSDP1, by a class that derives from it too."""
    bases = (isinstance(use.module.parent(use.node), ast.ClassDef) for use in project.uses(FSDP))
    return bool(project.wraps) or any(bases)


def _calls_no_wrapper(project: Project, edits: dict[str, list[tuple[Edit, Finding]]]) -> bool:
    """Whether every `enable_wrap` is given a function of the project, now or by what is done."""
    calls = list(project.calls_of(ENABLE))
    return bool(calls) and all(
        calls_function(project.index, module, call)
        or ((wrapper := wrapper_of(call)) is not None and is_gone(module, wrapper, edits))
        for module, call in calls
    )


def _is_kept(module: Module, node: ast.AST, edits: dict[str, list[tuple[Edit, Finding]]]) -> bool:
    """Whether an edit puts the same text in the place of a name: it is spoken of, and stays."""
    span, text = module.span(node), module.code(node)
    return any(edit.span == span and edit.code == (text,) for edit, _ in edits.get(module.path, []))


def _stays(module: Module, node: ast.AST, name: str) -> Finding:
    what = "wraps with what it is given" if name == ENABLE else "calls what its `enable_wrap` is given"
    message = f"torch's `{name.rpartition('.')[2]}` {what}, no wrapper of FSDP1's, and stays"
    return finding(module, node, CODE, message, is_note=True)


def _in_branch(project: Project, module: Module, node: ast.AST) -> Finding | None:
    """What is said of a name in a branch that only FSDP1 models of others reach."""
    span = module.span(node)
    if not any(branch.holds(span) for branch in fsdp1_branches(project).get(module.path, ())):
        return None
    message = "this is in a branch for FSDP1 models that come from elsewhere, and stays"
    return finding(module, node, CODE, message, is_note=True)


def _is_import_gone(module: Module, node: ast.expr, edits: dict[str, list[tuple[Edit, Finding]]]) -> bool:
    """Whether what imports a name imports something else of that name now (`codemods.gated_types`)."""
    found = module.scope_of(node).lookup(node.id) if isinstance(node, ast.Name) else None
    aliases = [
        alias
        for binding in (found[1] if found is not None else ())
        if isinstance(binding.node, ast.ImportFrom)
        for alias in binding.node.names
        if is_fsdp1_import(binding.node, alias) and (alias.asname or alias.name) == binding.name
    ]
    return bool(aliases) and all(is_gone(module, alias, edits) for alias in aliases)


def _spoken_by_todos(project: Project) -> Iterator[tuple[str, int]]:
    """Statements below which an earlier run left a TODO of a rule: what it found is still said there."""
    for path, module in list(project.modules.items()):
        for comment in todo.todos(module):
            if CODE not in comment.codes:
                yield path, todo.code_line_below(module, comment.line)


def _unmistakable(
    project: Project,
    module: Module,
    edits: dict[str, list[tuple[Edit, Finding]]],
    spoken: set[tuple[str, int]],
    own: frozenset[str],
) -> Iterator[Finding]:
    """Attributes that only FSDP1 has, whatever they are taken from, and strings that ask for them."""
    for node, name in _unmistakable_names(module):
        if name in own:
            continue
        symbol = project.resolve(module, node) if isinstance(node, ast.Attribute) else None
        if symbol is not None and symbol.module is not None:
            continue
        # An object that is known to be something else may well have a method of that name.
        owner = node.value if isinstance(node, ast.Attribute) and name in _METHODS else None
        if owner is not None and not _can_be_wrapper(project, module, owner, name):
            continue
        if is_gone(module, node, edits) or is_spoken_of(module, node, spoken):
            continue
        spoken.add((module.path, module.place(module.statement(node)).line))
        asked = _asked_for_first(module, node) if isinstance(node, ast.Attribute) else None
        if asked is not None:
            message = f"`{name}` is taken where it is there: an FSDP2 model has none, and goes the other way"
            yield from (finding(module, one, CODE, message, is_note=True) for one in (asked, node))
            continue
        yield _in_branch(project, module, node) or finding(
            module,
            node,
            CODE,
            f"`{name}` is a name of FSDP1's wrapper, and where this object comes from was not found",
            remedy="if this is a sharded model, rewrite this by hand: an FSDP2 model does not have it",
        )


def _asked_for_first(module: Module, node: ast.Attribute) -> ast.expr | None:
    """The test `hasattr(m, "_fsdp_wrapped_module")` where a place is reached only where it holds."""
    question = f"hasattr({ast.unparse(node.value)}, {node.attr!r})"
    tests = (test for test, holds in conditions(module, node) if holds)
    return next((test for test in tests if question in ast.unparse(test)), None)


def _can_be_wrapper(project: Project, module: Module, node: ast.expr, method: str) -> bool:
    """Whether an expression can hold an FSDP1 wrapper, or an object of a class that derives from it.

    What is known is not all there is: where a sharded model can get to and no known class has the method,
    it is asked of that model.
    """
    links = project.links
    if links.is_unseen(module, node):
        return True
    is_known = False
    for held in links.held(module, node):
        if isinstance(held, Instance):
            for owner, home in links.classes.lineage(held.node, held.module):
                bases = (project.resolve(home, base) for base in owner.bases)
                if any(symbol is not None and symbol.name == FSDP for symbol in bases):
                    return True
            is_known = is_known or bool(links.classes.methods(held, method))
    return not is_known and links.may_be_sharded(node)


def _unmistakable_names(module: Module) -> Iterator[tuple[ast.expr, str]]:
    for node in module.attributes(*UNMISTAKABLE):
        yield node, node.attr
    for call in module.calls():
        match call:
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr"),
                args=[owner, ast.Constant(value=str() as name), *rest],
            ):
                # With the object itself in its place nothing goes wrong where there is none.
                is_itself = bool(rest) and ast.unparse(rest[0]) == ast.unparse(owner)
                if name in UNMISTAKABLE and not is_itself and not is_read_where_met(module, call):
                    yield call, name
    for compare in module.nodes(ast.Compare) if "FullyShardedDataParallel" in module.text else ():
        assert isinstance(compare, ast.Compare)
        for part in (n for side in (compare.left, *compare.comparators) for n in ast.walk(side)):
            if isinstance(part, ast.Constant) and part.value == "FullyShardedDataParallel":
                yield compare, part.value


def _is_variable(module: Module, node: ast.expr, name: str) -> bool:
    """Whether a chain starts at a variable that was assigned an FSDP1 name: the assignment is spoken of.

    A method taken from such a class, or a second name for it, is not spoken of with it.
    """
    if name.startswith(f"{FSDP}.") or isinstance(module.parent(node), ast.Assign):
        return False
    while isinstance(node, ast.Attribute):
        node = node.value
    found = module.scope_of(node).lookup(node.id) if isinstance(node, ast.Name) else None
    return found is not None and all(b.kind is not BindingKind.IMPORT for b in found[1])


def _is_inner(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether a name is part of a longer chain that is an FSDP1 name itself."""
    parent = module.parent(node)
    if not isinstance(parent, ast.Attribute):
        return False
    symbol = project.resolve(module, parent)
    return symbol is not None and is_fsdp_namespace(symbol.name)


def _in_text(
    project: Project,
    module: Module,
    edits: dict[str, list[tuple[Edit, Finding]]],
    spoken: set[tuple[str, int]],
    *,
    wraps: bool,
) -> Iterator[Finding]:
    """FSDP1's names in types that are written as text."""
    for node in module.nodes(ast.Constant):
        assert isinstance(node, ast.Constant)
        if not isinstance(node.value, str) or isinstance(module.parent(node), ast.Expr):
            continue
        words = [word for word in _WORD.findall(node.value) if _can_mean(module, word)]
        if not words or not is_annotation(module, node):
            continue
        span = module.span(node)
        if any(span.holds(edit.span) or edit.span.holds(span) for edit, _ in edits.get(module.path, [])):
            continue
        meanings = (project.meaning(module, word) for word in words)
        name = next((name for name in meanings if name is not None and is_fsdp1(name)), None)
        if name is None or any((module.path, line) in spoken for line in header(module, node)):
            continue
        spoken.add((module.path, module.place(module.statement(node)).line))
        yield left_name(module, node, name, wraps=wraps)


def _can_mean(module: Module, word: str) -> bool:
    """Whether dotted text starts with a name that the top of a module has from somewhere."""
    return word.partition(".")[0] in module.scope.bindings or bool(module.scope.star_imports)
