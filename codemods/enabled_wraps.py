"""`wrap` calls whose `enable_wrap` block is entered elsewhere: in another function, or by another file. Pure.

torch's `enable_wrap` and `wrap` know nothing of FSDP1: `wrap(m)` calls what the block was given. Given the
helper module's `shard_model`, every `wrap` within the block shards, wherever it stands.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from codemods.analysis.enabled import ENABLE, calls_function, wrapper_of
from codemods.analysis.holding import WrapCall
from codemods.analysis.library_calls import lightning_calls
from codemods.analysis.module import Module
from codemods.project import Project
from codemods.torch_names import FSDP

_MEMO = "wraps whose block is entered elsewhere"


@dataclass(frozen=True, slots=True, eq=False)
class Enabling:
    """Every `enable_wrap` and every `wrap` of a project, where they only meet when the program runs.

    Attributes:
        blocks: the calls of `enable_wrap`, each as a call with the settings of a wrapper.
        sites: the calls of `wrap`.
    """

    blocks: tuple[WrapCall, ...]
    sites: tuple[WrapCall, ...]


def enabling(project: Project) -> Enabling | None:
    """None where every `wrap` stands in its block, or something else than FSDP1's class can be meant."""
    if _MEMO not in project.memo:
        project.memo[_MEMO] = _enabling(project)
    found = project.memo[_MEMO]
    assert found is None or isinstance(found, Enabling)
    return found


def _enabling(project: Project) -> Enabling | None:
    sites = [site for site in project.wraps if site.kind == "wrap"]
    calls = [c for c in project.calls_of(ENABLE) if not calls_function(project.index, *c)]
    if not calls or any(True for _ in lightning_calls(project)):
        return None
    if not all(gives_fsdp1(project, module, call) for module, call in calls):
        return None
    visible = {site.settings for site in sites if block_refusal(project, site) is None}
    if visible == {site.settings for site in sites} == {call for _, call in calls}:
        return None
    return Enabling(tuple(WrapCall(m, c, "block") for m, c in calls), tuple(sites))


def gives_fsdp1(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether an `enable_wrap` is known to be given FSDP1's class."""
    wrapper = wrapper_of(call)
    symbol = project.resolve(module, wrapper) if wrapper is not None and not call.args else None
    return symbol is not None and symbol.name == FSDP


def block_refusal(project: Project, site: WrapCall) -> tuple[str, str] | None:
    """What keeps a `wrap(m)` from becoming a call with the settings of the `enable_wrap` around it."""
    remedy = "shard the module with fully_shard once it is built, before the model around it"
    if site.block is None:
        return "`wrap` stands outside an `enable_wrap` block of its function", remedy
    given = {k.arg: k.value for k in site.settings.keywords if k.arg is not None}
    wrapper = given.pop("wrapper_cls", None)
    symbol = project.resolve(site.module, wrapper) if wrapper is not None else None
    if symbol is None or symbol.name != FSDP:
        return "`enable_wrap` has another wrapper class", remedy
    if not all(isinstance(v, ast.Name | ast.Attribute | ast.Constant) for v in given.values()):
        return "the settings of `enable_wrap` are made in its call", remedy
    if site.node.keywords or len(site.node.args) != 1:
        return "the module is wrapped with settings of its own", remedy
    others = {w.node for w in project.wraps if w.block is site.block and w is not site} - {site.node.args[0]}
    if others & set(ast.walk(site.node.args[0])):
        return "parts of the module are wrapped in the same expression", remedy
    return None
