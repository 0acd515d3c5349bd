"""`sync_module_states`. Source: `torch.distributed.fsdp._init_utils._sync_module_params_and_buffers`."""

from __future__ import annotations

from codemods.rule import Literal
from codemods.shard_call import Argument, Inline, Translation, keyword


@keyword("sync_module_states", {})
def sync_module_states(argument: Argument) -> Translation:
    """`sync_module_states=True` stays a broadcast of parameters and buffers from the first rank, before
    sharding.

    The helper module does it unit by unit, as FSDP1 did, so that no more than one unit is whole on the device
    at a time.
    """
    if isinstance(argument.value, Literal) and not argument.value.value:
        return Translation(inline=Inline(), keep=False)
    return Translation(inline=None)
