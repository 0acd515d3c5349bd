from types import SimpleNamespace

import torch
from job import Block, options, train
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def shard(model, dtype):
    for module in model:
        if isinstance(module, Block):
            fully_shard(module, mp_policy=MixedPrecisionPolicy(dtype, dtype, cast_forward_inputs=False))
    fully_shard(model, mp_policy=MixedPrecisionPolicy(dtype, dtype))
    return model


def states(model, optimizer, options=None):
    return {
        "model": get_model_state_dict(model, options=options),
        "optim": get_optimizer_state_dict(model, optimizer, options=options),
    }


def full(model, optimizer):
    return states(model, optimizer, StateDictOptions(full_state_dict=True, cpu_offload=True))


choice = options()
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**12, enabled=choice.mistake != "scaler-off")
train(shard, SimpleNamespace(sharded=states, full=full), scaler, choice.mistake)
