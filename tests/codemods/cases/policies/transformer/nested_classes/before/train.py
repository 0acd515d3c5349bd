import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from model import Block, Model, batch, loss_of


class Pair(torch.nn.Module):
    """A unit that holds units."""

    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(width))
        self.blocks = torch.nn.Sequential(Block(width), Block(width))

    def forward(self, x):
        return self.blocks(x * self.scale)


def main(out):
    model = Model()
    model.blocks = torch.nn.ModuleList([Pair(16), Block(16)])
    model = FSDP(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Pair, Block}
        ),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    loss = loss_of(model, batch(0))
    loss.backward()
    return {"model": model, "loss": loss.item()}
