"""`ignored_modules` and `ignored_states`, two keywords of one meaning: who gives them, and what they become.

Source: `fully_shard(ignored_params=)`, torch 2.7 and later."""

from __future__ import annotations

import ast

from codemods.rule import (
    Holding,
    Literal,
    Opaque,
    Project,
    Sequenced,
    Sharded,
    Value,
    WrapCall,
    finding,
    options,
)
from codemods.shard_call import Argument, Inline, Translation
from codemods.wrap_site import arguments_of


def ignored_arguments(project: Project, site: WrapCall) -> tuple[list[Argument], bool]:
    """What a wrap call is told not to shard, wherever that is written; and whether it can be told more."""
    found, unknown = arguments_of(project, site)
    return [a for a in found if a.name in ("ignored_modules", "ignored_states")], unknown


def ignores_any(project: Project, site: WrapCall) -> bool:
    """Whether a wrap leaves parameters out, or can."""
    given, _ = ignored_arguments(project, site)
    return any(not _is_nothing(value) for argument in given for value in options(argument.value))


def _is_nothing(value: Value) -> bool:
    """None, an empty list, or what a caller may give and none is seen to."""
    match value:
        case Literal(value=None):
            return True
        case Sequenced():
            return not value.elements
        case Opaque(why="decided by the caller"):
            return True
    return False


def has_only_shards(project: Project, holding: Holding) -> bool:
    """Whether every parameter of what is held is sharded for certain, as far as its wraps say."""
    sites = holding.sites if isinstance(holding, Sharded) else frozenset()
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
