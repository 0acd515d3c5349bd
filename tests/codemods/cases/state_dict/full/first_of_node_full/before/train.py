import os

import torch
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy, StateDictType


def main():
    model = FSDP(nn.Linear(4, 4), sharding_strategy=ShardingStrategy.FULL_SHARD)
    policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
        state = model.state_dict()
    if int(os.environ["LOCAL_RANK"]) == 0:
        torch.save(state, "model.pt")
