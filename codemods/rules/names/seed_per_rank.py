"""Ranks that draw different initial weights, and a wrap that does not make them equal.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_param.py` (each rank keeps a part of its own weights).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.analysis.origins import Origins
from codemods.plain_tests import is_test_path
from codemods.rule import Finding, Literal, Module, Project, WrapCall, finding, options, rule
from codemods.wrap_site import arguments_of

_SEEDS = ("torch.manual_seed", "torch.random.manual_seed", "torch.cuda.manual_seed_all")
_FUNCTIONS = ("set_seed", "seed_everything", "set_random_seed", "seed_all", "setup_seed", "fix_seed")
_CALLERS_DEPTH = 3

_CALLED_WITH_RANK = rb"(?i)seed\w*[ \t]*\([\s\S]{0,300}?rank"


@rule(
    "seed per rank",
    {"FM526": "ranks can start from different weights"},
    where={b"seed": _CALLED_WITH_RANK},
    needs_wraps=True,
)
def seed_per_rank(project: Project) -> Iterator[Finding]:
    """Where each rank has a seed of its own and nothing sends rank 0's weights round, ranks can differ.

    On a mesh of one dimension the model is then put together from parts of different models, under FSDP1 and
    FSDP2 alike, but of other parts; on a mesh that replicates the replicas never agree.
    `sync_module_states=True` (kept by the rewrite), or one seed for all ranks while the model is built, makes
    them equal. Noted at a wrap without it, where a function that sets a seed is given the rank, unless what
    sets the seed last before the model is built, in the same function or before the calls of it, gives all
    ranks the same, or the model is read from a file (`from_pretrained`, or
    `load_state_dict` right behind the constructor)."""
    modules = project.looked_at if project.wraps else []
    seeds = [(module, call) for module in modules for call in _seeds_by_rank(project, module)]
    for site in project.wraps:
        is_seeded = any(
            project.is_one_program(module.path, site.module.path) and not _is_behind(module, call, site)
            for module, call in seeds
        )
        if is_seeded and not _may_sync(project, site) and not _has_common_seed(project, site):
            yield finding(
                site.module,
                site.node,
                "FM526",
                "ranks have different seeds here and may start from different weights: nothing sends "
                "rank 0's to all (`sync_module_states=True` does)",
                is_note=True,
            )


def _may_sync(project: Project, site: WrapCall) -> bool:
    arguments, unknown = arguments_of(project, site)
    told = [value for a in arguments if a.name == "sync_module_states" for value in options(a.value)]
    return unknown or any(not isinstance(value, Literal) or bool(value.value) for value in told)


def _has_common_seed(project: Project, site: WrapCall) -> bool:
    """Whether a seed that all ranks share is set last before each place where the model can be built."""
    origins = Origins(project.links)
    made = origins.of(site.module, site.wrapped) if site.wrapped is not None else frozenset()
    built = [(origins.homes[node], node) for node in made if isinstance(node, ast.Call)]
    return bool(built) and all(
        _is_read(home, node) or _is_common(project, home, node) for home, node in built
    )


def _is_read(module: Module, built: ast.Call) -> bool:
    """Whether a model comes with weights from a file, the same on all ranks, or is given all of them."""
    if isinstance(built.func, ast.Attribute) and built.func.attr in ("from_pretrained", "from_checkpoint"):
        return True
    statement = module.statement(built)
    if not isinstance(statement, ast.Assign) or statement.value is not built:
        return False
    block = module.block(statement)
    loads = [
        later.value
        for later in block[block.index(statement) + 1 :]
        if isinstance(later, ast.Expr) and isinstance(later.value, ast.Call)
    ]
    names = {f"{ast.unparse(target)}.load_state_dict" for target in statement.targets}
    return any(ast.unparse(c.func) in names and len(c.args) == 1 and not c.keywords for c in loads)


def _is_common(project: Project, module: Module, built: ast.Call, depth: int = _CALLERS_DEPTH) -> bool:
    """Whether the last seed before a place is common: in its function, or else before every call of that."""
    function, start = module.function(built), module.span(built).start
    seeds = [
        call
        for call in module.calls()
        if module.function(call) is function
        and module.span(call).start < start
        and _is_seed(project, module, call)
        and module.statement(call) in _block_around(module, built)
    ]
    if seeds:
        return not _is_by_rank(project, module, max(seeds, key=lambda c: module.span(c).start))
    calls = project.links.calls_of(module, function) if function is not None and depth else []
    calls = [(home, call) for home, call in calls if not is_test_path(home.path)]
    return bool(calls) and all(_is_common(project, home, call, depth - 1) for home, call in calls)


def _block_around(module: Module, node: ast.AST) -> set[ast.stmt]:
    """Every statement of the blocks that a node stands in."""
    around = [module.statement(node), *(p for p in module.ancestors(node) if isinstance(p, ast.stmt))]
    function = module.function(node)
    inside = [s for s in around if s is not function and module.function(s) is function]
    return {one for statement in inside for one in module.block(statement)}


def _is_by_rank(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether a call that sets the seed is given the rank, or a function of the project that asks for it."""
    if any("rank" in ast.unparse(a).lower() for a in (*call.args, *(k.value for k in call.keywords))):
        return True
    for home, function in project.links.functions.meant(module, call.func):
        if isinstance(function, ast.Lambda):
            return True
        parameters = {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}
        for inner in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
            words = {n.id for n in ast.walk(inner) if isinstance(n, ast.Name)}
            named = {word for word in words if "rank" in word.lower()}
            is_asked = "rank" in ast.unparse(inner).lower() and not (named and named <= parameters)
            if is_asked and _is_seed(project, home, inner):
                return True
    return False


def _seeds_by_rank(project: Project, module: Module) -> list[ast.Call]:
    """Where the seed of all random numbers depends on the rank: `torch.manual_seed(seed + rank)`."""
    if re.search(_CALLED_WITH_RANK, module.text.encode()) is None:
        return []
    return [
        call
        for call in module.calls()
        if _is_seed(project, module, call)
        and any("rank" in ast.unparse(a).lower() for a in (*call.args, *(k.value for k in call.keywords)))
    ]


def _is_behind(module: Module, call: ast.Call, site: WrapCall) -> bool:
    """Whether a seed is set behind a wrap, in its function and in no loop around both."""
    if module is not site.module or module.function(call) is not module.function(site.node):
        return False
    loops = [p for p in module.ancestors(call) if isinstance(p, ast.For | ast.While)]
    is_repeated = any(module.span(loop).holds(module.span(site.node)) for loop in loops)
    return not is_repeated and module.span(call).start > module.span(site.node).start


def _is_seed(project: Project, module: Module, call: ast.Call) -> bool:
    """Not so for a generator's own seed."""
    if not any("seed" in word for word in _last_words(call.func)):
        return False
    symbol = project.resolve(module, call.func)
    name = symbol.name if symbol is not None else ast.unparse(call.func)
    # A function of the project is named `path.py:function`.
    if name in _SEEDS or name.replace(":", ".").rpartition(".")[2] in _FUNCTIONS:
        return True
    return any(
        ast.unparse(inner.func) in _SEEDS
        for _, function in project.links.functions.meant(module, call.func)
        for inner in ast.walk(function)
        if isinstance(inner, ast.Call)
    )


def _last_words(callee: ast.expr) -> tuple[str, ...]:
    if isinstance(callee, ast.Attribute):
        return (callee.attr,)
    return (callee.id,) if isinstance(callee, ast.Name) else ()
