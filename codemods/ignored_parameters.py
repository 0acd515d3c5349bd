"""`ignored_modules` and `ignored_states`, two keywords of one meaning: who gives them, and what they become.

Source: `fully_shard(ignored_params=)`, torch 2.7 and later."""

from __future__ import annotations

import ast

from codemods.rule import Literal, Maybe, Module, Project, Sequenced, Sharded, WrapCall, finding
from codemods.shard_call import Argument, Inline, Translation
from codemods.wrap_site import arguments_of


def ignored_arguments(project: Project, site: WrapCall) -> tuple[list[Argument], bool]:
    """What a wrap call is told not to shard, wherever that is written; and whether it can be told more."""
    found, unknown = arguments_of(project, site)
    return [a for a in found if a.name in ("ignored_modules", "ignored_states")], unknown


def has_only_shards(project: Project, module: Module, model: ast.expr) -> bool:
    """Whether no parameter of the model is left out of sharding, as far as its wraps say."""
    holding = project.sharded(module, model)
    sites = holding.sites if isinstance(holding, Sharded | Maybe) else frozenset()
    return bool(sites) and all(ignored_arguments(project, site) == ([], False) for site in sites)


def ignored_parameters(argument: Argument, code: str) -> Translation:
    """The translation of what is not sharded; a note with that code where torch has no `ignored_params=`."""
    value = argument.value
    if isinstance(value, Literal) and value.value is None:
        return Translation(inline=Inline(), keep=False)
    if (
        isinstance(value, Sequenced)
        and not value.elements
        and isinstance(argument.node, ast.List | ast.Tuple)
    ):
        return Translation(inline=Inline(), keep=False)
    if argument.project.options.target_torch >= (2, 7):
        return Translation(inline=None)
    note = finding(
        argument.module,
        argument.node,
        code,
        "ignored parameters are hidden from `fully_shard`, which takes `ignored_params=` from torch 2.7 on",
        remedy="where torch is 2.7 or later, rewrite with `--target-torch 2.7`",
        is_note=True,
    )
    return Translation(inline=None, findings=(note,))
