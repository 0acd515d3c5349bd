from functools import partial

from torch import nn

from fsdp2_sharding import transformer_auto_wrap_policy
from model import Block

LAYERS = (Block, nn.Embedding)


def get_policy():
    return partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
