"""What a wrap call is given, keyword by keyword, and whether its form can be translated at all."""

from __future__ import annotations

import ast
import sys

from codemods.analysis.flow import reaching
from codemods.analysis.holding import WrapCall
from codemods.analysis.module import Module
from codemods.analysis.origins import Origins
from codemods.analysis.scopes import BindingKind
from codemods.analysis.values import Choice, DictValue, Named, Opaque, Origin, options
from codemods.enabled_wraps import block_refusal, enabling
from codemods.partial_calls import calls_of_partial, positional
from codemods.project import Project
from codemods.shard_call import SIGNATURE, Argument, keyword_rules
from codemods.shared_types import shared_call, taken_types

_CONTAINERS = tuple(
    f"torch.nn.{where}{name}"
    for where in ("", "modules.", "modules.container.")
    for name in ("ModuleList", "ModuleDict")
)
_META_WORDS = ("'meta'", "init_empty_weights", "init_on_device", "init_meta", "meta_init", "meta_device")
_RENAMED = {"ignored_parameters": "ignored_states"}
"""Keywords of torch 2.0 and before, and what they are called since."""

_READ = sys.stdlib_module_names | {"torch"}
"""What hands on values as they are, or is read as the library it is."""

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

_CALLERS_DEPTH = 3


def refusal(project: Project, site: WrapCall) -> tuple[str, str] | None:
    """Why a wrap call cannot be translated by its form alone, and what to do; None where it can."""
    if _is_container(project, site):
        return (
            "a list of modules has no `forward` that FSDP2 could gather its parameters for",
            "shard the modules in it one by one, `for part in parts: fully_shard(part)`, or as one unit, "
            "`fully_shard(list(parts))`",
        )
    is_at_run_time = site.kind in ("wrap", "block") and enabling(project) is not None
    for parent in site.module.ancestors(site.node):
        if isinstance(parent, _COMPREHENSIONS) and not is_at_run_time and not _fills_attribute(site):
            return (
                "a wrap inside a comprehension does not say which model the parts belong to",
                "build the modules first, then shard each and the model around them with fully_shard",
            )
        if isinstance(parent, ast.stmt):
            break
    missing = site.wrapped is None and site.kind not in ("partial", "block")
    given = list(site.arguments)
    if site.kind == "partial":
        given = [node for _, _, node in positional(project, site)]
    if missing or any(isinstance(a, ast.Starred) for a in given):
        return (
            "the arguments of this wrap call are unpacked from a sequence",
            "name the module and the keywords at the call, then rewrite again",
        )
    return block_refusal(project, site) if site.kind == "wrap" and not is_at_run_time else None


def _is_container(project: Project, site: WrapCall) -> bool:
    """Whether what is wrapped is an `nn.ModuleList` or `nn.ModuleDict` and nothing else."""
    origins = Origins(project.links)
    made = origins.of(site.module, site.wrapped) if site.wrapped is not None else frozenset()
    calls = [(origins.homes[node], node) for node in made if isinstance(node, ast.Call)]
    symbols = [project.resolve(home, call.func) for home, call in calls]
    return bool(symbols) and all(s is not None and s.name in _CONTAINERS for s in symbols)


def _fills_attribute(site: WrapCall) -> bool:
    """Whether a comprehension's modules go into an attribute: `self.x = nn.ModuleList(wrap(b) for ...)`."""
    statement = site.module.statement(site.node)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Attribute):
        return False
    return isinstance(site.wrapped, ast.Name) or (site.kind == "wrap" and isinstance(site.wrapped, ast.Call))


def taken_by_wrap(project: Project, site: WrapCall) -> frozenset[str]:
    """What a wrap call shares with others: its arguments' text, and types whose values it takes."""
    arguments, unknown = arguments_of(project, site)
    names = {argument.name for argument in arguments} | ({"**"} if unknown else set())
    names |= {"**" for argument in site.arguments if isinstance(argument, ast.Starred)}
    return taken_types(project, site.module, site.settings, names) | {shared_call(site.module, site.settings)}


def stray_keywords(project: Project, site: WrapCall) -> list[str]:
    """Keywords of a wrap call that no rule knows."""
    known = keyword_rules()
    return [a.name for a in arguments_of(project, site)[0] if a.name not in known]


def made_outside(project: Project, argument: Argument) -> str | None:
    """Where a value of one of FSDP1's types comes from that stays torch's, because the file is not part of
    what is rewritten; None where nothing says that there is such a file."""
    if argument.name not in ("sharding_strategy", "mixed_precision"):
        return None
    symbols = [value.symbol for value in options(argument.value) if isinstance(value, Named)]
    root: ast.expr = argument.node
    while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
        root = root.func if isinstance(root, ast.Call) else root.value
    found = argument.module.scope_of(root).lookup(root.id) if isinstance(root, ast.Name) else None
    if found is not None and all(b.kind is BindingKind.IMPORT for b in found[1]):
        symbol, target = project.resolve(argument.module, root), found[1][0].target
        if symbol is not None:
            symbols.append(symbol)
        elif all(project.index.find(t, argument.module.path) is None for t in (target, _parent(target))):
            return target
    outside = (s.name for s in symbols if s.module is None and s.name.split(".")[0] not in _READ)
    return next(outside, None)


def made_elsewhere(name: str) -> tuple[str, str]:
    """What is said of a value that `made_outside` named, and what to do."""
    message = f"`{name}` is made outside of what is rewritten, and stays of torch's type"
    return message, "rewrite the directory that holds both, or make the value in this program"


def _parent(dotted: str) -> str:
    """The module of `.settings.STRATEGY`: `.settings`."""
    head, dot, _ = dotted.rpartition(".")
    return head if head.strip(".") else head + dot


def may_be_on_meta(project: Project, site: WrapCall) -> bool:
    """Whether the wrapped model can be without storage, which FSDP1 filled by `reset_parameters()`."""
    origins = Origins(project.links)
    made = origins.of(site.module, site.wrapped) if site.wrapped is not None else frozenset()
    return any(_is_reached_on_meta(project, site, origins.homes[node], node) for node in made)


def _is_reached_on_meta(
    project: Project, site: WrapCall, module: Module, node: ast.AST, depth: int = _CALLERS_DEPTH
) -> bool:
    """Whether a place stands in such a context, or in a function that the wrap's program calls in one."""
    if _is_made_on_meta(module, node):
        return True
    function = module.function(node)
    if function is None or not depth:
        return False
    calls = project.links.calls_of(module, function)
    return any(
        _is_reached_on_meta(project, site, home, call, depth - 1)
        for home, call in calls
        if project.is_one_program(home.path, site.module.path)
    )


def _is_made_on_meta(module: Module, node: ast.AST) -> bool:
    """`Model(device="meta")`, or a call within `with torch.device("meta"):`, whatever the context's name."""
    if isinstance(node, ast.Call) and any("'meta'" in ast.unparse(k.value) for k in node.keywords):
        return True
    for parent in module.ancestors(node):
        for item in parent.items if isinstance(parent, ast.With) else ():
            texts = [ast.unparse(item.context_expr)]
            for name in (n for n in ast.walk(item.context_expr) if isinstance(n, ast.Name)):
                found = module.scope_of(name).lookup(name.id)
                live = reaching(module, *found, name) if found is not None else []
                texts += [ast.unparse(b.value) for b in live if b.value is not None]
            if any(word in text for text in texts for word in _META_WORDS):
                return True
    return False


def arguments_of(project: Project, site: WrapCall) -> tuple[list[Argument], bool]:
    """Every keyword of a call, `**` dicts opened; and whether some of them are not known."""
    found: list[Argument] = []
    unknown = False

    def add(name: str, module: Module, node: ast.expr, item: ast.AST, *, at_call: bool) -> None:
        value = project.evaluate(module, node)
        if _is_chosen_outside(module, node):
            # The parameter goes on deciding, whatever the callers of today give it.
            decided = Opaque("decided by the caller", Origin(module, node))
            value = Choice((value, decided), Origin(module, node))
        name = _RENAMED.get(name, name)
        found.append(Argument(project, site, name, module, node, value, at_call, item))

    given = [(position, site.module, node) for position, node in enumerate(site.arguments)]
    if site.kind == "partial":
        given = positional(project, site)
    for position, module, node in given:
        name = SIGNATURE[position] if position < len(SIGNATURE) else f"argument {position}"
        if position:
            add(name, module, node, node, at_call=node in site.arguments)
    if site.kind == "partial":
        calls, unknown = calls_of_partial(project, site)
        for module, keyword in ((taken.module, k) for taken in calls for k in taken.call.keywords):
            if keyword.arg is None:
                unknown = True
            elif keyword.arg != "module":
                add(keyword.arg, module, keyword.value, keyword, at_call=False)
    for keyword in site.settings.keywords:
        if keyword.arg is not None:
            if keyword.arg not in ("module", "wrapper_cls"):
                add(keyword.arg, site.module, keyword.value, keyword, at_call=True)
            continue
        for value in options(project.evaluate(site.module, keyword.value)):
            if not isinstance(value, DictValue):
                unknown = True
                continue
            unknown = unknown or not value.complete
            for name, origins in value.items.items():
                for origin, (_, item) in zip(origins, value.places[name], strict=True):
                    add(name, origin.module, origin.node, item, at_call=False)
    return found, unknown


def _is_chosen_outside(module: Module, node: ast.expr, depth: int = 8) -> bool:
    """Whether which value an expression has is up to a parameter of the function it stands in."""
    match node:
        case ast.Name() if depth:
            found = module.scope_of(node).lookup(node.id)
            return found is not None and any(
                binding.kind is BindingKind.PARAMETER
                or (binding.value is not None and _is_chosen_outside(module, binding.value, depth - 1))
                for binding in reaching(module, *found, node)
            )
        case ast.Attribute():
            return _is_chosen_outside(module, node.value, depth)
        case ast.Subscript():
            return any(_is_chosen_outside(module, part, depth) for part in (node.value, node.slice))
        case ast.IfExp():
            return any(_is_chosen_outside(module, part, depth) for part in (node.body, node.orelse))
        case ast.BoolOp():
            return any(_is_chosen_outside(module, part, depth) for part in node.values)
    return False
