"""The model of the jobs: odd sizes, tied weights, an integer buffer, units inside units."""

from __future__ import annotations

import torch
from torch import nn

VOCABULARY, WIDTH = 19, 6


class Block(nn.Module):
    """A unit."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 11)
        self.down = nn.Linear(11, WIDTH, bias=False)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    """Embedding, blocks, a tied head, a parameter smaller than the number of ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.scale = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x * self.scale)


def build() -> Model:
    """The model of every rank, with the same weights."""
    torch.manual_seed(1)
    return Model()


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    """The loss of one step on this rank's tokens."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    tokens = torch.randint(VOCABULARY, (4, 9), generator=generator)
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
