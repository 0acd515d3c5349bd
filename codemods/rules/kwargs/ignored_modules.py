"""`ignored_modules`. Source: `fully_shard(ignored_params=)`, torch 2.7 and later."""

from __future__ import annotations

from codemods.ignored_parameters import ignored_parameters
from codemods.shard_call import Argument, Translation, keyword


@keyword("ignored_modules", {"FM117": "parameters that are not sharded"})
def ignored_modules(argument: Argument) -> Translation:
    """`ignored_modules` becomes `ignored_params=` on every `fully_shard` call; None and an empty list are
    dropped. For torch 2.6, which has no such argument, the helper module hides the parameters from it.

    FSDP2 neither moves ignored parameters to the device nor reduces their gradients, as FSDP1 did not reduce
    them.
    """
    return ignored_parameters(argument, "FM117")
