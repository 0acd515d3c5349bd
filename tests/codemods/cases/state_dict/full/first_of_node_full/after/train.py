import os

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import fully_shard


def main():
    model = nn.Linear(4, 4)
    fully_shard(model)
    policy = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=policy)
    if int(os.environ["LOCAL_RANK"]) == 0:
        torch.save(state, "model.pt")
