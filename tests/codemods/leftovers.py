"""FSDP1 names that a folder of Python still uses, found without the rewriter's analysis.

A second opinion on purpose: only `ast`, imports followed by name across the folder's own modules, and the
few attribute names that no other library has, also where they are strings. The case tests and
`benchmarks/corpus.py` hold every leftover against the findings of the rewriter.

Source of the names: `torch.distributed.fsdp.__init__` and `FullyShardedDataParallel`'s public methods.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

FSDP_MODULE = "torch.distributed.fsdp"
FSDP2_NAMES = frozenset(
    {
        "CPUOffloadPolicy",
        "DataParallelMeshDims",
        "FSDPModule",
        "MixedPrecisionPolicy",
        "OffloadPolicy",
        "UnshardHandle",
        "_fully_shard",
        "fully_shard",
        "register_fsdp_forward_method",
        "share_comm_ctx",
    }
)
OTHER_FSDP1_NAMES = frozenset(
    {
        "torch.distributed.checkpoint.optimizer.load_sharded_optimizer_state_dict",
        "torch.distributed.optim._apply_optimizer_in_backward",
    }
)
CLASS_NAME = "FullyShardedDataParallel"
# Attributes that stand for FSDP1 whatever they are taken from.
FSDP1_ATTRIBUTES = frozenset(
    {
        "_all_handles",
        "_flat_param",
        "_fsdp_wrapped_module",
        "_fully_sharded_module_to_handle",
        "flat_param",
        "flatten_sharded_optim_state_dict",
        "fsdp_modules",
        "full_optim_state_dict",
        "optim_state_dict_to_load",
        "rekey_optim_state_dict",
        "scatter_full_optim_state_dict",
        "set_state_dict_type",
        "shard_full_optim_state_dict",
        "sharded_optim_state_dict",
        "summon_full_params",
    }
)


@dataclass(frozen=True, slots=True, order=True)
class Leftover:
    """One use of an FSDP1 name; `line` to `end_line` is its statement, of a compound one the header.

    `alias_line` is where a plain variable was given it (`old_hook = _runtime_utils._post_backward_hook`), 0
    where it is used by its own name.
    """

    path: str
    line: int
    end_line: int
    name: str
    local: str
    is_import: bool
    alias_line: int = 0


@dataclass(slots=True)
class _Module:
    path: PurePosixPath
    tree: ast.Module
    bindings: dict[str, str] = field(default_factory=dict)
    """Local name -> dotted origin, for every import and plain alias in whatever scope."""
    stars: list[str] = field(default_factory=list)
    aliases: dict[str, int] = field(default_factory=dict)
    """Plain alias -> the line of its assignment."""

    @property
    def package(self) -> tuple[str, ...]:
        return self.path.parent.parts

    def dotted(self) -> tuple[str, ...]:
        parts = self.path.with_suffix("").parts
        return parts[:-1] if parts[-1] == "__init__" else parts


HELPER_MODULE = "fsdp2_sharding"
_FSDP1 = re.compile(r"FSDP|FullySharded")


def scan(folder: Path) -> list[Leftover]:
    """Every use of an FSDP1 name below `folder`, in order; files that do not parse are passed over."""
    modules = _bound_modules(folder)
    own = frozenset(name for module in modules for name in _stored(module.tree))
    methods = OwnMethods(frozenset(_own_methods(modules)))
    return sorted({leftover for module in modules for leftover in _uses(module, own, methods)})


def _stored(tree: ast.Module) -> Iterator[str]:
    """Attributes that the code gives to objects of its own: `self.fsdp_modules = {}`, fields of classes;
    private ones only through the `self` of a class that is none of FSDP1's, whose objects have them too."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    heirs = [one for one in classes if any(_FSDP1.search(ast.unparse(base)) for base in one.bases)]
    of_heirs = {node for one in heirs for node in ast.walk(one)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            is_own = ast.unparse(node.value) == "self" and node not in of_heirs
            if is_own or not node.attr.startswith("_"):
                yield node.attr
    for one in classes:
        fields = (s.target for s in one.body if isinstance(s, ast.AnnAssign))
        names = (target.id for target in fields if isinstance(target, ast.Name))
        yield from (name for name in names if not name.startswith("_"))


@dataclass(frozen=True, slots=True)
class OwnMethods:
    """Methods of a folder's classes that have the name of one of FSDP1's; see `_own_methods`."""

    names: frozenset[tuple[str, str]]

    def has(self, path: str, node: ast.Attribute) -> bool:
        """Whether an attribute, in the file at `path`, is such a method."""
        receiver = _last_name(node.value)
        return ((path if receiver == "self" else receiver), node.attr) in self.names


def own_methods(folder: Path) -> OwnMethods:
    """Those of the modules below a folder."""
    return OwnMethods(frozenset(_own_methods(_bound_modules(folder))))


def _own_methods(modules: list[_Module]) -> Iterator[tuple[str, str]]:
    """(`_dist`, `summon_full_params`) for a variable or attribute that is given an object of a class which
    has a method of that name; (path, name) for the file of the class, whose `self` has it."""
    classes: dict[str, set[str]] = {}
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                named = {s.name for s in node.body if isinstance(s, ast.FunctionDef)} & FSDP1_ATTRIBUTES
                classes.setdefault(node.name, set()).update(named)
                yield from ((module.path.as_posix(), name) for name in named)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                made = ast.unparse(node.value.func).rpartition(".")[2]
                for target in node.targets:
                    yield from ((_last_name(target), name) for name in classes.get(made, ()))


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def resolved(
    folder: Path, names: re.Pattern[bytes]
) -> Iterator[tuple[str, ast.Module, Callable[[ast.expr], str | None]]]:
    """Path and tree of every module below `folder` in which one of the names stands, and what a name or
    attribute chain in it means."""
    for module in _bound_modules(folder, names):
        yield module.path.as_posix(), module.tree, partial(_origin, module)


def _bound_modules(folder: Path, names: re.Pattern[bytes] | None = None) -> list[_Module]:
    paths = [p for p in sorted(folder.rglob("*.py")) if names is None or names.search(p.read_bytes())]
    modules = [module for path in paths if (module := _read(folder, path))]
    for module in modules:
        _bind_imports(module)
    _follow_own_modules(modules)
    return modules


def uncovered(
    leftovers: Iterable[Leftover], findings: Iterable[tuple[str, int]], todos: Iterable[tuple[str, int]] = ()
) -> list[Leftover]:
    """Leftovers at whose statement no finding (path, line) stands and no TODO comment directly above.

    An import is covered by a finding of its own or by one at any use of the name it binds, a variable by one
    where it was given the name.
    """
    leftovers = list(leftovers)
    found, marked = set(findings), set(todos)

    def at_statement(leftover: Leftover) -> bool:
        lines = [*range(leftover.line, leftover.end_line + 1), leftover.alias_line]
        return any((leftover.path, line) in found for line in lines) or any(
            (leftover.path, line) in marked for line in (*lines, leftover.line - 1, leftover.alias_line - 1)
        )

    covered_names = {(leftover.path, leftover.local) for leftover in leftovers if at_statement(leftover)}
    return [
        leftover
        for leftover in leftovers
        if not at_statement(leftover)
        and not (leftover.is_import and (leftover.path, leftover.local) in covered_names)
    ]


def todo_lines(folder: Path, mark: str = "TODO(fsdp-migrate") -> list[tuple[str, int]]:
    """(path, line) of the last line of every comment block that holds `mark`."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            if mark not in line:
                continue
            last = number
            while (
                last < len(lines) and line.lstrip().startswith("#") and lines[last].lstrip().startswith("#")
            ):
                last += 1
            found.append((path.relative_to(folder).as_posix(), last))
    return found


def _read(folder: Path, path: Path) -> _Module | None:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return None
    return _Module(PurePosixPath(path.relative_to(folder).as_posix()), tree)


def _bind_imports(module: _Module) -> None:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                target = alias.name if alias.asname else alias.name.split(".")[0]
                module.bindings[alias.asname or target] = target
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(module, node)
            for alias in node.names:
                if alias.name == "*":
                    module.stars.append(source)
                else:
                    module.bindings[alias.asname or alias.name] = f"{source}.{alias.name}"
    _forget_defined_anew(module)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
            origin = _origin(module, node.value)
            for target in node.targets:
                if not (isinstance(target, ast.Name) and origin and origin.startswith(FSDP_MODULE)):
                    continue
                if module.bindings.setdefault(target.id, origin) is origin:
                    module.aliases[target.id] = node.lineno


def _forget_defined_anew(module: _Module) -> None:
    """An import at the top of a module means nothing where a `def` or `class` further down has its name."""
    imported: set[str] = set()
    for statement in module.tree.body:
        if isinstance(statement, ast.ImportFrom):
            imported.update(alias.asname or alias.name for alias in statement.names)
        is_definition = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if is_definition and statement.name in imported:
            module.bindings.pop(statement.name, None)


def _absolute(module: _Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.package[: len(module.package) - (node.level - 1)]
    return ".".join([*package, *([node.module] if node.module else [])])


def _follow_own_modules(modules: list[_Module]) -> None:
    """Replace origins in the folder's own modules by what those modules bind, until nothing moves."""
    by_suffix: dict[str, list[_Module]] = {}
    for module in modules:
        dotted = module.dotted()
        for start in range(len(dotted)):
            by_suffix.setdefault(".".join(dotted[start:]), []).append(module)
    moved = True
    while moved:
        moved = False
        for module in modules:
            for star in module.stars:
                for source in by_suffix.get(star, []) if not star.startswith("torch") else []:
                    for name, origin in source.bindings.items():
                        if _is_fsdp1(origin) and name not in module.bindings:
                            module.bindings[name] = origin
                            moved = True
            for name, origin in list(module.bindings.items()):
                if origin.startswith("torch."):
                    continue
                holder, _, symbol = origin.rpartition(".")
                for source in by_suffix.get(holder, []):
                    real = source.bindings.get(symbol)
                    if real and real != origin and _is_fsdp1(real):
                        module.bindings[name] = real
                        moved = True


def _is_fsdp1(origin: str) -> bool:
    if origin in OTHER_FSDP1_NAMES:
        return True
    if not origin.startswith(FSDP_MODULE + "."):
        return False
    return origin[len(FSDP_MODULE) + 1 :].split(".")[0] not in FSDP2_NAMES


def _origin(module: _Module, node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return module.bindings.get(node.id)
    if isinstance(node, ast.Attribute):
        value = _origin(module, node.value)
        return f"{value}.{node.attr}" if value else None
    return None


def _uses(module: _Module, own: frozenset[str], methods: OwnMethods) -> Iterator[Leftover]:
    path = module.path.as_posix()
    for statement, node in _nodes_with_statement(module.tree):
        line, end_line = _header(statement)
        if isinstance(node, ast.ImportFrom):
            source = _absolute(module, node)
            for alias in node.names:
                local = alias.asname or alias.name
                origin = module.bindings.get(local, f"{source}.{alias.name}")
                if alias.name == "*" and source.startswith(FSDP_MODULE):
                    yield Leftover(path, line, end_line, f"{source}.*", "*", True)
                elif _is_fsdp1(origin) and alias.name != "*":
                    yield Leftover(path, line, end_line, origin, local, True)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_fsdp1(alias.name):
                    yield Leftover(path, line, end_line, alias.name, alias.asname or alias.name, True)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            continue  # `FSDP = None` is no use of torch's
        elif isinstance(node, ast.Name | ast.Attribute):
            origin = _origin(module, node)
            if origin and _is_fsdp1(origin):
                local = ast.unparse(node).split(".")[0]
                yield Leftover(path, line, end_line, origin, local, False, module.aliases.get(local, 0))
                continue
            for part in _attributes(node):
                name = part.attr
                if name in FSDP1_ATTRIBUTES and name not in own and not methods.has(path, part):
                    yield Leftover(path, line, end_line, f".{name}", name, False)
        elif isinstance(node, ast.Constant):
            yield Leftover(path, line, end_line, repr(node.value), str(node.value), False)


def _attributes(node: ast.expr) -> Iterator[ast.Attribute]:
    """Every attribute of a chain: `a` and `b` of `x.a.b`; not those of Accelerate's plugin and of the helper
    module."""
    while isinstance(node, ast.Attribute):
        if not of_plugin(node) and not ast.unparse(node.value).endswith(HELPER_MODULE):
            yield node
        node = node.value


def _strings(node: ast.AST) -> Iterator[ast.Constant]:
    """Strings that stand for FSDP1: its class by name in a comparison, its attributes that are asked for."""
    match node:
        case ast.Compare():
            for part in (n for side in (node.left, *node.comparators) for n in ast.walk(side)):
                if isinstance(part, ast.Constant) and part.value == CLASS_NAME:
                    yield part
        case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[owner, ast.Constant() as name, *rest]):
            # `getattr(x, name, x)` is right with and without a wrapper.
            is_itself = bool(rest) and ast.unparse(rest[0]) == ast.unparse(owner)
            if name.value in FSDP1_ATTRIBUTES and not is_itself:
                yield name


def of_plugin(node: ast.Attribute) -> bool:
    """Whether a method is that of Accelerate's plugin, which has one of the name for FSDP2 too."""
    return node.attr == "set_state_dict_type" and ast.unparse(node.value).endswith("plugin")


def _nodes_with_statement(tree: ast.Module) -> Iterator[tuple[ast.stmt, ast.AST]]:
    """Every import and outermost name or attribute chain, each with the innermost statement around it."""

    def visit(node: ast.AST, statement: ast.stmt | None) -> Iterator[tuple[ast.stmt, ast.AST]]:
        if isinstance(node, ast.stmt):
            statement = node
        if statement is not None and isinstance(node, ast.Import | ast.ImportFrom):
            yield statement, node
            return
        if statement is not None and isinstance(node, ast.Name | ast.Attribute):
            yield statement, node
            if isinstance(node, ast.Attribute):
                inner = node.value
                while isinstance(inner, ast.Attribute):
                    inner = inner.value
                if not isinstance(inner, ast.Name):
                    yield from visit(inner, statement)
            return
        for constant in _strings(node) if statement is not None else ():
            yield statement, constant
        for text in _string_annotations(node):
            if statement is not None:
                yield from visit(text, statement)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, statement)

    yield from visit(tree, None)


def _string_annotations(node: ast.AST) -> Iterator[ast.expr]:
    annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
    if isinstance(annotation, ast.AST):
        for part in ast.walk(annotation):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                try:
                    yield ast.parse(part.value, mode="eval").body
                except SyntaxError:
                    continue


def _header(statement: ast.stmt) -> tuple[int, int]:
    start = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
        return start, max(statement.lineno, body[0].lineno - 1)
    return start, statement.end_lineno or statement.lineno
