"""What `ignored_modules` and `ignored_states` become, two keywords of one meaning.

Source: `fully_shard(ignored_params=)`, torch 2.7 and later."""

from __future__ import annotations

import ast

from codemods.rule import Literal, Sequenced, finding
from codemods.shard_call import Argument, Inline, Translation


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
