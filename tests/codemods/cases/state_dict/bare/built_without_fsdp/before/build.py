from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Pair(nn.Module):
    def __init__(self, fsdp_config):
        super().__init__()
        self.small, self.large = nn.Linear(4, 4), nn.Linear(4, 4)
        if fsdp_config is not None:
            self.small = FSDP(self.small, **fsdp_config)
            self.large = FSDP(self.large, **fsdp_config)


def build(fsdp_config):
    return Pair(fsdp_config=fsdp_config)


def wrapped(net, use_fsdp):
    return FSDP(net, use_orig_params=True) if use_fsdp else net
