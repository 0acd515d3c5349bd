from torch import nn
from torch.distributed.fsdp.wrap import wrap


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        # TODO(fsdp-migrate FM105): call fully_shard on this module once it is built,
        #   before the model around it
        self.up = wrap(nn.Linear(width, 2 * width))
        # TODO(fsdp-migrate FM105): call fully_shard on this module once it is built,
        #   before the model around it
        self.down = wrap(nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.down(self.up(x))
