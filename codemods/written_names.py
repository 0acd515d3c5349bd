"""Dotted names of FSDP1 that are written as text, for a program to import: `_target_:
torch.distributed.fsdp.MixedPrecision`. Pure."""

from __future__ import annotations

import re

from codemods.torch_names import FSDP1_NAMES, POLICIES, STATE_DICT_TYPES, canonical, is_fsdp1

_PREFIX = "torch.distributed.fsdp."
_DOTTED = re.compile(r"torch\.distributed\.fsdp(?:\.\w+)+")
_REMEDIES = {
    "FullyShardedDataParallel": "name a function of your own that calls `fully_shard` on the units and the "
    "model and gives the model back, with settings of `fully_shard`",
    "MixedPrecision": "name `torch.distributed.fsdp.MixedPrecisionPolicy`, together with the wrap that takes "
    "it: `reduce_dtype` is `param_dtype` where FSDP1 was told none, and there is no `buffer_dtype`",
    "CPUOffload": "name `torch.distributed.fsdp.CPUOffloadPolicy` where `offload_params` is true, and "
    "nothing where it is false, together with the wrap that takes it",
    "ShardingStrategy": "say `reshard_after_forward`, true for FULL_SHARD and false for SHARD_GRAD_OP, and "
    "give the hybrid ones a mesh of two dimensions, together with the wrap that takes it",
    "ShardedGradScaler": "name `torch.amp.GradScaler`, which finds infinities on every rank",
    "BackwardPrefetch": "remove it: FSDP2 gathers ahead as BACKWARD_PRE did",
}
_POLICY = "say which classes are units where `fully_shard` is called: it takes no policy"
_STATE_DICTS = "say at each state dict call what it gives (`StateDictOptions`)"
_OTHER = "do without it: FSDP2 does not have it"


def fsdp1_name_in(text: str) -> str | None:
    """The name that a text is, such as `ShardingStrategy` or `FullyShardedDataParallel.clip_grad_norm_`."""
    if not _DOTTED.fullmatch(text):
        return None
    name = canonical(text)
    short = name.removeprefix(_PREFIX).removeprefix("wrap.").removeprefix("sharded_grad_scaler.")
    return short if is_fsdp1(name) and short.split(".")[0] in FSDP1_NAMES else None


def fsdp1_names_within(text: str) -> list[tuple[int, str]]:
    """Such names within a longer text, each with its position and as it is written."""
    return [(m.start(), m.group()) for m in _DOTTED.finditer(text) if fsdp1_name_in(m.group())]


def remedy_for(name: str) -> str:
    """What to do with a name of FSDP1 that a configuration gives.

    Args:
        name: as `fsdp1_name_in` gives it.
    """
    head, _, rest = name.partition(".")
    if head == "FullyShardedDataParallel" and rest:
        return f"name what stands in its place after the rewrite: see `explain {rest}`"
    if head in POLICIES:
        return _POLICY
    return _REMEDIES.get(head) or (_STATE_DICTS if head in STATE_DICT_TYPES else _OTHER)
