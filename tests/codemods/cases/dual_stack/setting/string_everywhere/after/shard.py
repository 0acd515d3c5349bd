from contextlib import nullcontext

from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import FSDPModule, fully_shard

STRATEGIES = ("none", "fsdp", "fsdp2")


def fsdp_version(model):
    if isinstance(model, FSDPModule):
        return 2
    else:
        return 0


def state_context():
    return nullcontext()


def full_weights(model):
    # FSDP2 has no context for this.
    if fsdp_version(model) == 2:
        return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))

    with state_context():
        return model.state_dict()


def shard_model(model, strategy):
    if strategy in ("fsdp", "fsdp2"):
        # children before parents
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    elif strategy != "none":
        raise ValueError(strategy)
    return model
