import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import shard_model


class Pair(nn.Module):
    def __init__(self, net, other):
        super().__init__()
        self.nets = nn.ModuleDict({"first": shard_model(net)})
        self.nets["second"] = fully_shard(other)
        self.nets["head"] = nn.Linear(4, 4)

    def step(self):
        nn.utils.clip_grad_norm_(self.nets.first.parameters(), 1.0)
        nn.utils.clip_grad_norm_(self.nets["second"].parameters(), 1.0)
        torch.save(
            get_model_state_dict(
                self.nets.second, options=StateDictOptions(full_state_dict=True)
            ),
            "second.pt",
        )
        torch.save(self.nets.head.state_dict(), "head.pt")
