"""Whose parameters the parameters of a part are: `model.backbone.parameters()` are shards of `model`."""

from __future__ import annotations

import ast

from codemods.analysis.holding import Holding, No
from codemods.analysis.module import Module
from codemods.ignored_parameters import ignored_arguments
from codemods.project import Project

_NO_MODULES = ("optim", "sched", "scaler", "loader", "sampler", "tokenizer", "config", "callback")


def model_of(project: Project, module: Module, owner: ast.expr) -> tuple[ast.expr, Holding]:
    """The sharded model that has the parameters of `owner`: itself, or what `owner` is written as a part of.

    A part is none where the wrap leaves parameters out: it can be what is left out.
    """
    whole, holding = owner, project.sharded(module, owner)
    while isinstance(holding, No) and isinstance(whole, ast.Attribute | ast.Subscript):
        if isinstance(whole, ast.Attribute) and any(word in whole.attr.lower() for word in _NO_MODULES):
            break
        whole = whole.value
        holding = project.sharded(module, whole)
    if whole is owner or isinstance(holding, No):
        return owner, holding
    if any(ignored_arguments(project, site)[0] for site in holding.sites):
        return owner, No()
    return whole, holding
