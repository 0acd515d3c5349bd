import torch
from torch import nn


class Block(nn.Module):
    """Its frequencies are in no state dict."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("frequencies", torch.empty(width), persistent=False)
        self.reset_parameters()

    def reset_parameters(self):
        with torch.no_grad():
            self.frequencies.copy_(torch.arange(len(self.frequencies)))

    def forward(self, x):
        return x + self.linear(x) * self.frequencies.cos()


class Rotary(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(32, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, 32)

    @torch.no_grad()
    def fill(self):
        for parameter in self.parameters():
            parameter.fill_(0.1)
        for block in self.blocks:
            block.reset_parameters()

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)
