"""`forward_prefetch`. Source: `FSDPModule.set_modules_to_forward_prefetch`."""

from __future__ import annotations

from codemods.rule import Literal, finding
from codemods.shard_call import Argument, Inline, Translation, keyword


@keyword("forward_prefetch", {"FM123": "`forward_prefetch` needs torch 2.5"})
def forward_prefetch(argument: Argument) -> Translation:
    """`forward_prefetch=True` becomes `set_modules_to_forward_prefetch` along the units in order; False is
    the default.

    FSDP1 used the order recorded in the first iteration; the order of the modules is the same for models that
    run their blocks one after the other. Torch 2.4 has no such method: with `--target-torch 2.4` the keyword
    is dropped (FM123); results do not depend on it.
    """
    if isinstance(argument.value, Literal) and not argument.value.value:
        return Translation(inline=Inline(), keep=False)
    if argument.project.options.target_torch >= (2, 5):
        return Translation(inline=None)
    note = finding(
        argument.module,
        argument.node,
        "FM123",
        "forward prefetching is dropped: torch 2.4 has no `set_modules_to_forward_prefetch`",
        remedy="train with torch 2.5 or later, and rewrite with --target-torch 2.5",
        is_note=True,
    )
    return Translation(inline=Inline(), keep=False, findings=(note,))
