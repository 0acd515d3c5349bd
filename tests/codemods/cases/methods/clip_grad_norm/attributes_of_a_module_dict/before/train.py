import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Pair(nn.Module):
    def __init__(self, net, other):
        super().__init__()
        self.nets = nn.ModuleDict({"first": FSDP(net, use_orig_params=True)})
        self.nets["second"] = FSDP(other, use_orig_params=True)
        self.nets["head"] = nn.Linear(4, 4)

    def step(self):
        self.nets.first.clip_grad_norm_(1.0)
        self.nets["second"].clip_grad_norm_(1.0)
        torch.save(self.nets.second.state_dict(), "second.pt")
        torch.save(self.nets.head.state_dict(), "head.pt")
