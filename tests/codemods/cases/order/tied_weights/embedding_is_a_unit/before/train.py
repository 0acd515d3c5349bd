import functools

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embed.weight


def build():
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={nn.Embedding}
    )
    return FSDP(Model(), auto_wrap_policy=policy)
