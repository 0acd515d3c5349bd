"""FSDP1 names that no rule spoke of: each still gets a finding, so that nothing is left over in silence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from codemods.analysis.holding import Instance
from codemods.analysis.module import Module
from codemods.analysis.scopes import BindingKind
from codemods.editing import todo
from codemods.editing.apply import replaces
from codemods.editing.code import delete, finding
from codemods.editing.removal import delete_aliases
from codemods.editing.statements import annotation_words, is_annotation
from codemods.model import Edit, Finding, Outcome, Reported, Safety
from codemods.project import Project
from codemods.torch_names import FSDP, canonical, is_fsdp1, is_fsdp_namespace

CODE = "FM516"
UNUSED = "FM518"
_PREFIX = "torch.distributed.fsdp."
_REMEDIES = {
    "FullyShardedDataParallel": "shard with `fully_shard` in place; a sharded module is an `FSDPModule`",
    "StateDictType": "say at each state dict call what it gives (`StateDictOptions`)",
    "FlatParameter": "there is no flat parameter: work on `model.parameters()`, which are DTensors",
    "enable_wrap": "build the modules first, then shard each with `fully_shard`, the model around them last",
    "wrap": "shard the module with `fully_shard` once it is built",
    "ShardingStrategy": "go by what your configuration says: a sharded model does not remember its strategy; "
    "norms of its DTensors are those of the whole already",
    "CustomPolicy": "loop over `reversed(list(model.modules()))` and shard what the function wants",
    "sharded_grad_scaler": "use `torch.amp.GradScaler`, which finds infinities on every rank",
    "OptimStateKeyType": "optimizer state stays keyed by parameter name",
}
_PRIVATE_REMEDIES = {
    "_init_intra_and_inter_node_groups": "leave `process_group` out: HYBRID_SHARD without it shards within "
    "each node, over a mesh that the helper module makes",
}
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
    for name in project.used_names():
        if not is_fsdp1(name):
            continue
        for use in project.uses(name):
            module, node = use.module, use.node
            if _is_variable(module, node, name) or _is_inner(project, module, node):
                continue
            if _is_gone(module, node, edits):
                continue
            if _is_spoken_of(module, node, spoken):
                continue
            spoken.add((module.path, module.place(module.statement(node)).line))
            yield _finding(module, node, name)
    for module in project.naming:
        yield from _in_text(project, module, edits, spoken)
        yield from _unread_imports(project, module, edits, spoken)
        yield from _unmistakable(project, module, edits, spoken)


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
) -> Iterator[Finding]:
    """Attributes that only FSDP1 has, whatever they are taken from, and strings that ask for them."""
    for node, name in _unmistakable_names(module):
        symbol = project.resolve(module, node) if isinstance(node, ast.Attribute) else None
        if symbol is not None and symbol.module is not None:
            continue
        # An object that is known to be something else may well have a method of that name.
        owner = node.value if isinstance(node, ast.Attribute) and name in _METHODS else None
        if owner is not None and not _can_be_wrapper(project, module, owner):
            continue
        if _is_gone(module, node, edits):
            continue
        if _is_spoken_of(module, node, spoken):
            continue
        spoken.add((module.path, module.place(module.statement(node)).line))
        yield finding(
            module,
            node,
            CODE,
            f"`{name}` is a name of FSDP1's wrapper, and where this object comes from was not found",
            remedy="if this is a sharded model, rewrite this by hand: an FSDP2 model does not have it",
        )


def _can_be_wrapper(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether it was not found what an expression holds, or it is of a class that derives from FSDP1's."""
    if project.links.is_unseen(module, node):
        return True
    for held in project.links.held(module, node):
        if isinstance(held, Instance):
            for owner, home in project.links.classes.lineage(held.node, held.module):
                bases = (project.resolve(home, base) for base in owner.bases)
                if any(symbol is not None and symbol.name == FSDP for symbol in bases):
                    return True
    return False


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
                if name in UNMISTAKABLE and not is_itself:
                    yield call, name
    for compare in module.nodes(ast.Compare) if "FullyShardedDataParallel" in module.text else ():
        assert isinstance(compare, ast.Compare)
        for part in (n for side in (compare.left, *compare.comparators) for n in ast.walk(side)):
            if isinstance(part, ast.Constant) and part.value == "FullyShardedDataParallel":
                yield compare, part.value


def _finding(module: Module, node: ast.AST, name: str) -> Finding:
    words = name.removeprefix(_PREFIX).removeprefix("wrap.").split(".")
    short = ".".join(words)
    if any(word.startswith("_") for word in words):
        message = f"`{short}` is private to FSDP1 and has no counterpart"
        remedy = _PRIVATE_REMEDIES.get(words[-1]) or (
            "do without FSDP1's internals: `FSDPModule` has `unshard()` and `reshard()`, "
            "parameters are DTensors"
        )
    elif name.startswith(f"{FSDP}."):
        message = f"`{words[-1]}` is taken from FSDP1's class"
        remedy = f"write it as `model.{words[-1]}(...)`: FSDP1's class is gone after the rewrite"
    else:
        message = f"`{short}` belongs to FSDP1 and is still used here"
        remedy = _REMEDIES.get(words[0], "rewrite this by hand for `fully_shard`")
    return finding(module, node, CODE, message, remedy=remedy)


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


def _is_gone(module: Module, node: ast.AST, edits: dict[str, list[tuple[Edit, Finding]]]) -> bool:
    spans = [module.span(node)]
    while isinstance(node, ast.Attribute):
        node = node.value
        spans.append(module.span(node))
    return any(replaces(edit, span) for edit, _ in edits.get(module.path, []) for span in spans)


def _is_spoken_of(module: Module, node: ast.AST, spoken: set[tuple[str, int]]) -> bool:
    return any((module.path, line) in spoken for line in _header(module, node))


def _header(module: Module, node: ast.AST) -> range:
    """The lines of the innermost statement around a node; of a compound statement those before its body."""
    statement = module.statement(node)
    first = module.line_of(module.span(statement).start)
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body:
        return range(first, max(first, module.line_of(module.span(body[0]).start) - 1) + 1)
    return range(first, module.line_of(module.span(statement).end) + 1)


def _in_text(
    project: Project,
    module: Module,
    edits: dict[str, list[tuple[Edit, Finding]]],
    spoken: set[tuple[str, int]],
) -> Iterator[Finding]:
    """FSDP1's names in types that are written as text."""
    for node in module.nodes(ast.Constant):
        assert isinstance(node, ast.Constant)
        if not isinstance(node.value, str) or not is_annotation(module, node):
            continue
        span = module.span(node)
        if any(span.holds(edit.span) or edit.span.holds(span) for edit, _ in edits.get(module.path, [])):
            continue
        meanings = (project.meaning(module, word) for word in re.findall(r"[A-Za-z_][\w.]*", node.value))
        name = next((name for name in meanings if name is not None and is_fsdp1(name)), None)
        if name is None or any((module.path, line) in spoken for line in _header(module, node)):
            continue
        spoken.add((module.path, module.place(module.statement(node)).line))
        yield _finding(module, node, name)


def _unread_imports(
    project: Project,
    module: Module,
    edits: dict[str, list[tuple[Edit, Finding]]],
    spoken: set[tuple[str, int]],
) -> Iterator[Finding]:
    """Imports of FSDP1 names that the file itself does not use: handed on to other files, or forgotten."""
    names = {n.id for n in module.nodes(ast.Name) if isinstance(n, ast.Name)} | annotation_words(module)
    for node in module.nodes(ast.ImportFrom):
        assert isinstance(node, ast.ImportFrom)
        source = node.module or ""
        if node.level or not is_fsdp_namespace(source) or _is_gone(module, node, edits):
            continue
        untaken: list[ast.alias] = []
        for alias in node.names:
            name = canonical(f"{source}.{alias.name}")
            if alias.name == "*" or not is_fsdp1(name) or _is_gone(module, alias, edits):
                continue
            is_attribute = isinstance(module.parent(node), ast.ClassDef)
            if (alias.asname or alias.name) in names and not is_attribute:
                continue
            uses = [use for use in project.uses(name) if use.module is not module]
            if uses and all(_is_gone(use.module, use.node, edits) for use in uses):
                untaken.append(alias)
            elif not _is_spoken_of(module, node, spoken):
                spoken.add((module.path, module.place(node).line))
                yield _finding(module, node, name)
        if untaken:
            yield _no_longer_taken(module, node, untaken)


def _no_longer_taken(module: Module, node: ast.ImportFrom, aliases: list[ast.alias]) -> Finding:
    if len(aliases) == len(node.names):
        edits = [delete(module, node)]
    else:
        edits = delete_aliases(module, node, aliases)
    names = ", ".join(f"`{alias.asname or alias.name}`" for alias in aliases)
    message = f"no other file takes {names} from here any more"
    return finding(module, node, UNUSED, message, safety=Safety.SAFE, edits=edits)
