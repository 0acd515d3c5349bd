"""What lasting choices of a kind of state dict, and blocks around the calls of a function, come to.

Source: `torch/distributed/fsdp/fully_sharded_data_parallel.py` (`state_dict_type`, `set_state_dict_type`),
torch 2.6 to 2.13. FSDP1 keeps the choice in the model, so that it holds for every call until another is made.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from codemods.analysis.holding import Maybe, Sharded, WrapCall
from codemods.analysis.module import Module
from codemods.analysis.state_dicts import (
    Block,
    Kind,
    Setting,
    Unknown,
    argument,
    enclosing,
    same_model,
    setting_of,
    sites_of,
)

if TYPE_CHECKING:
    from codemods.project import Project

LOCAL = "LOCAL_STATE_DICT holds flat parameters, which FSDP2 does not have"
CALLERS_DEPTH = 3


def decided(project: Project, module: Module, node: ast.AST, model: ast.expr) -> Setting | Unknown | None:
    """What lasting choices and callers' blocks come to; None where there are none."""
    return _set_earlier(project, module, node, model) or _from_callers(project, module, node, CALLERS_DEPTH)


def _set_earlier(
    project: Project, module: Module, node: ast.AST, model: ast.expr
) -> Setting | Unknown | None:
    """What `set_state_dict_type` chose: the last call before in the same function, else all must agree."""
    here: list[tuple[int, ast.Call, Setting | Unknown]] = []
    elsewhere: list[Setting | Unknown] = []
    may_be_any, covered = _is_told_only(project, module, model), set[WrapCall]()
    for use in project.static_calls("set_state_dict_type"):
        target = argument(use.node, 0, "module")
        if target is None:
            continue
        if not same_model(project, module, model, use.module, target):
            if not may_be_any or not project.is_one_program(module.path, use.module.path):
                continue
            covered |= sites_of(project, use.module, target)
        setting = setting_of(project, use.module, use.node)
        in_function = use.module is module and module.function(use.node) is module.function(node)
        if in_function and use.node.lineno <= getattr(node, "lineno", 0):
            here.append((use.node.lineno, use.node, setting))
            continue
        if _is_conditional(use.module, use.node):
            elsewhere.append(Setting())
        elsewhere.append(setting)
    if covered and not covered.issuperset(project.wraps):
        elsewhere.append(Setting())  # it may be a model that nothing was chosen for
    if here:
        last = max(here, key=lambda found: found[0])
        if _comes_before(module, last[1], node) or not elsewhere:
            return last[2] if len({_bare(found[2]) for found in here}) == 1 else _last(module, last, node)
        return _agreed([found[2] for found in here] + elsewhere, _DIFFERENT)
    return _agreed(elsewhere, _DIFFERENT)


def _is_told_only(project: Project, module: Module, model: ast.expr) -> bool:
    """Whether it is said of a model that it is sharded, and not known where: it can be any of the program."""
    holding = project.sharded(module, model)
    return isinstance(holding, Sharded | Maybe) and not holding.sites


_DIFFERENT = "`set_state_dict_type` is called with different types"


def _last(module: Module, last: tuple[int, ast.Call, Setting | Unknown], node: ast.AST) -> Setting | Unknown:
    """The last of several different choices, where every path to a place goes through it."""
    return last[2] if _comes_before(module, last[1], node) else Unknown(_DIFFERENT)


def _comes_before(module: Module, call: ast.Call, node: ast.AST) -> bool:
    """Whether every path to a place goes through a call: it stands in a block of statements around it."""
    holder = module.parent(module.statement(call))
    return (
        holder is not None and holder in module.ancestors(node) and not isinstance(holder, ast.ExceptHandler)
    )


def _is_conditional(module: Module, call: ast.Call) -> bool:
    """Whether a choice is made on some paths only, other than "where the model is sharded"."""
    for parent in module.ancestors(call):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        if isinstance(parent, ast.If | ast.Match | ast.While):
            test = parent.subject if isinstance(parent, ast.Match) else parent.test
            if "fsdp" not in ast.unparse(test).lower():
                return True
    return False


def _from_callers(project: Project, module: Module, node: ast.AST, depth: int) -> Setting | Unknown | None:
    """What the blocks around the calls of this function choose; no call in a block: None."""
    function = module.function(node)
    if function is None or depth == 0:
        return None
    found: list[Setting | Unknown | None] = []
    for caller, call in _calls_of(project, module, function):
        block = enclosing(project, caller, call, None)
        if block is not None:
            found.append(setting_of(project, caller, block.call))
        else:
            found.append(_from_callers(project, caller, call, depth - 1))
    if not any(found):
        return None
    told = [setting or Setting() for setting in found]
    return _agreed(told, "it is called inside and outside of `state_dict_type` contexts that differ")


def _calls_of(
    project: Project, module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[tuple[Module, ast.Call]]:
    """The calls of a function, without `x.state_dict()`: what those ask of a model is translated there."""
    for caller, call in project.links.calls_of(module, function):
        asks = isinstance(call.func, ast.Attribute) and call.func.attr in ("state_dict", "load_state_dict")
        if not asks:
            yield caller, call


def around_callers(project: Project, module: Module, node: ast.AST, depth: int) -> Iterator[Block]:
    """The blocks in which the function around a place is called."""
    function = module.function(node)
    if function is None or depth == 0:
        return
    for caller, call in _calls_of(project, module, function):
        block = enclosing(project, caller, call, None)
        if block is not None:
            yield block
        else:
            yield from around_callers(project, caller, call, depth - 1)


def _bare(setting: Setting | Unknown) -> Setting | Unknown:
    return setting.bare if isinstance(setting, Setting) else setting


def _agreed(found: list[Setting | Unknown], why: str) -> Setting | Unknown | None:
    if not found:
        return None
    settings = {_bare(setting) for setting in found}
    if len(settings) == 1:
        return settings.pop()
    is_local = any(isinstance(s, Setting) and s.kind is Kind.LOCAL for s in settings)
    return Unknown(LOCAL if is_local else why)
