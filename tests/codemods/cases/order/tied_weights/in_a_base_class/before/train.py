import functools

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from base import Base, Block


class Tied(Base):
    def __init__(self, width):
        super().__init__(width)
        self.head.weight = self.embed.weight
        self.first.weight = self.second.weight


def main(other):
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={Block, nn.Embedding}
    )
    other.tie_weights()
    other.get_output_embeddings().weight = other.get_input_embeddings().weight
    return FSDP(Tied(16), auto_wrap_policy=policy), FSDP(other, auto_wrap_policy=policy)
