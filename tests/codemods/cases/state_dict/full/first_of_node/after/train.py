import os

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)

from fsdp2_sharding import ShardingStrategy, shard_model


def main():
    model = shard_model(
        nn.Linear(4, 4), sharding_strategy=ShardingStrategy.HYBRID_SHARD
    )
    # TODO(fsdp-migrate FM413): let rank 0 use it, or drop `rank0_only` where one rank
    #   of every node needs it
    policy = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=policy)
    if int(os.environ["LOCAL_RANK"]) == 0:
        torch.save(state, "model.pt")
