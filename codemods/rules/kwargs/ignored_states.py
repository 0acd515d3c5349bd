"""`ignored_states`. Source: `fully_shard(ignored_params=)`, torch 2.7 and later."""

from __future__ import annotations

from codemods.ignored_parameters import ignored_parameters
from codemods.shard_call import Argument, Translation, keyword


@keyword("ignored_states", {"FM118": "parameters that are not sharded"})
def ignored_states(argument: Argument) -> Translation:
    """`ignored_states`, modules or parameters, becomes `ignored_params=` on every `fully_shard` call; None
    and an empty list are dropped.

    FSDP2 neither moves ignored parameters to the device nor reduces their gradients, as FSDP1 did not reduce
    them.
    """
    return ignored_parameters(argument, "FM118")
