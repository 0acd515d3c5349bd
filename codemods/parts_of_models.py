"""Whose parameters the parameters of a part are: `model.backbone.parameters()` are shards of `model`."""

from __future__ import annotations

import ast

from codemods.analysis.entry_methods import methods_within
from codemods.analysis.holding import Holding, Maybe, No, Sharded, WrapCall
from codemods.analysis.module import Module
from codemods.ignored_parameters import ignored_arguments
from codemods.project import Project

_MEMO = "receivers of methods"
_NO_MODULES = ("optim", "sched", "scaler", "loader", "sampler", "tokenizer", "config", "callback")


def model_of(project: Project, module: Module, owner: ast.expr) -> tuple[ast.expr, Holding]:
    """The sharded model that has the parameters of `owner`: itself, or what `owner` is written as a part of.

    A part is none where the wrap leaves parameters out: it can be what is left out. `self` is one in a method
    that a sharded model is asked for: `model.configure_optimizers()`.
    """
    whole, holding = owner, project.sharded(module, owner)
    while isinstance(holding, No) and isinstance(whole, ast.Attribute | ast.Subscript):
        if isinstance(whole, ast.Attribute) and any(word in whole.attr.lower() for word in _NO_MODULES):
            break
        whole = whole.value
        holding = project.sharded(module, whole)
    if isinstance(holding, No) and isinstance(whole, ast.Name) and whole.id == "self":
        holding = _of_receivers(project, module, whole)
    if whole is owner or isinstance(holding, No):
        return owner, holding
    if any(ignored_arguments(project, site)[0] for site in holding.sites):
        return owner, No()
    return whole, holding


def _of_receivers(project: Project, module: Module, own: ast.Name) -> Holding:
    """The sharded models that a method is asked of, by itself or by another method of the same object."""
    owner, first = module.class_of(own), module.function(own)
    if owner is None or not isinstance(first, ast.FunctionDef):
        return No()
    known = project.memo.setdefault(_MEMO, {})
    assert isinstance(known, dict)
    if first not in known:
        known[first] = _asked_of(project, owner, first)
    found: Holding = known[first]
    return found


def _asked_of(project: Project, owner: ast.ClassDef, first: ast.FunctionDef) -> Holding:
    asked = [first]
    sites: set[WrapCall] = set()
    is_certain = True
    for method in asked:  # grows
        for home in project.looked_at:
            for call in home.called(method.name):
                receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
                if isinstance(receiver, ast.Name) and receiver.id == "self":
                    caller = home.function(call)
                    is_same = home.class_of(call) is owner
                    if is_same and isinstance(caller, ast.FunctionDef) and caller not in asked:
                        asked.append(caller)
                elif receiver is not None:
                    holding = project.sharded(home, receiver)
                    found = set() if isinstance(holding, No) else holding.sites
                    mine = {
                        site
                        for site in found
                        if site.wrapped is None or method in methods_within(project.links, site, method.name)
                    }
                    is_certain &= isinstance(holding, Sharded) and mine == found
                    sites |= mine
    if not sites:
        return No()
    return Sharded(frozenset(sites)) if is_certain else Maybe(frozenset(sites))
