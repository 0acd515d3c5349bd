from torch import nn

from fsdp2_sharding import shard_model


class Pair(nn.Module):
    def __init__(self, fsdp_config):
        super().__init__()
        self.small, self.large = nn.Linear(4, 4), nn.Linear(4, 4)
        if fsdp_config is not None:
            self.small = shard_model(self.small, **fsdp_config)
            self.large = shard_model(self.large, **fsdp_config)


def build(fsdp_config):
    return Pair(fsdp_config=fsdp_config)


def wrapped(net, use_fsdp):
    return shard_model(net) if use_fsdp else net
