"""`ignored_states`. Source: `fully_shard(ignored_params=)`, torch 2.7 and later."""

from __future__ import annotations

import ast

from codemods.rule import Literal, Sequenced, finding
from codemods.shard_call import Argument, Inline, Translation, keyword


@keyword("ignored_states", {"FM118": "parameters that are not sharded"})
def ignored_states(argument: Argument) -> Translation:
    """`ignored_states`, modules or parameters, becomes `ignored_params=` on every `fully_shard` call; None
    and an empty list are dropped.

    FSDP2 neither moves ignored parameters to the device nor reduces their gradients, as FSDP1 did not reduce
    them.
    """
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
        "FM118",
        "ignored parameters are hidden from `fully_shard`, which takes `ignored_params=` from torch 2.7 on",
        remedy="where torch is 2.7 or later, rewrite with `--target-torch 2.7`",
        is_note=True,
    )
    return Translation(inline=None, findings=(note,))
