import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp.wrap import wrap
from torch.nn import functional as F


class Block(nn.Module):
    """Adds what it is given beside the activations in that dtype."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = wrap(nn.Linear(2 * width, width))

    def forward(self, x, scale):
        hidden = F.gelu(self.up(self.norm(x))) * scale.mean().to(x.dtype)
        return x + self.down(hidden) * (scale - scale.to(torch.bfloat16)).to(x.dtype)


def build(width, depth):
    blocks = [wrap(Block(width)) for _ in range(depth)]
    head = wrap(nn.Linear(width, 32))
    return nn.ModuleDict({"embed": nn.Embedding(32, width), "blocks": nn.ModuleList(blocks), "head": head})


class Model(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def forward(self, tokens, scale):
        x = self.parts["embed"](tokens)
        scale = scale.float() + torch.linspace(0, 1, 16)  # in full precision for the blocks
        for block in self.parts["blocks"]:
            x = block(x, scale)
        return self.parts["head"](x)


def batch(step):
    """This rank's tokens of one step, and a factor in full precision."""
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    return torch.randint(0, 32, (4, 9), generator=generator), 100 * torch.rand(16, generator=generator)
