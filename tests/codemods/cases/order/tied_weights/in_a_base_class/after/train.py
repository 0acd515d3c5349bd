import functools

from torch import nn

from base import Base, Block
from fsdp2_sharding import shard_model, transformer_auto_wrap_policy


class Tied(Base):
    def __init__(self, width):
        super().__init__(width)
        # TODO(fsdp-migrate FM506): keep both out of the policy, or shard them together:
        #   `fully_shard([first, second])`
        self.head.weight = self.embed.weight
        self.first.weight = self.second.weight


def main(other):
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={Block, nn.Embedding}
    )
    # TODO(fsdp-migrate FM506): keep both out of the policy, or shard them together:
    #   `fully_shard([first, second])`
    other.tie_weights()
    # TODO(fsdp-migrate FM506): keep both out of the policy, or shard them together:
    #   `fully_shard([first, second])`
    other.get_output_embeddings().weight = other.get_input_embeddings().weight
    return shard_model(Tied(16), auto_wrap_policy=policy), shard_model(
        other, auto_wrap_policy=policy
    )
