"""`param_init_fn`. Source: `torch.distributed.fsdp._init_utils._materialize_with_param_init_fn`."""

from __future__ import annotations

from codemods.rule import Literal
from codemods.shard_call import Argument, Inline, Translation, keyword


@keyword("param_init_fn", {})
def param_init_fn(argument: Argument) -> Translation:
    """`param_init_fn` is called on the modules of a unit that are on the meta device, just before the unit is
    sharded.

    This is FSDP1's order (parents before children within a unit), so that random initial values are the same.
    Together with `sync_module_states` it still serves the pattern "real weights on rank 0, meta elsewhere".
    """
    if isinstance(argument.value, Literal) and argument.value.value is None:
        return Translation(inline=Inline(), keep=False)
    return Translation(inline=None)
