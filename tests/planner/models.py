"""Small models of every kind that a plan must get right, with their inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """A residual unit; its parameters divide by no small world size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width + 1)
        self.down = nn.Linear(2 * width + 1, width, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return hidden


class Model(nn.Module):
    """Embedding, blocks, head; a buffer, and a tensor that is neither buffer nor parameter."""

    def __init__(self, *, width: int = 13, vocabulary: int = 31, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(width))
        self.shift = torch.zeros(width)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
        x = self.embedding(input_ids)
        x = x * self.scale.to(x) + self.shift.to(x)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits if labels is None else F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class Adapter(nn.Module):
    """A frozen block with a small trained one beside it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = Block(width).requires_grad_(False)
        self.low = nn.Linear(width, 3, bias=False)
        self.high = nn.Linear(3, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.block(x) + self.high(self.low(x))
        return out


class Experts(nn.Module):
    """A unit of units: every token goes through all experts, weighted."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 3)
        self.experts = nn.ModuleList(Block(width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.gate(x).softmax(-1)
        parts = [expert(x) * weights[..., i : i + 1] for i, expert in enumerate(self.experts)]
        return torch.stack(parts).sum(0)


def uneven() -> nn.Module:
    """Nothing in it divides."""
    return Model()


def tied() -> nn.Module:
    """The head uses the embedding's weight."""
    return Model(tied=True)


def frozen() -> nn.Module:
    """Whole units are frozen, and the embedding."""
    model = Model()
    model.embedding.requires_grad_(False)
    model.blocks[0].requires_grad_(False)
    return model


def adapted() -> nn.Module:
    """Units mix frozen and trained parameters, as LoRA does."""
    model = Model()
    model.blocks = nn.ModuleList(Adapter(13) for _ in range(2))
    model.embedding.requires_grad_(False)
    model.head.requires_grad_(False)
    return model


def experts() -> nn.Module:
    """Units inside units."""
    model = Model()
    model.blocks = nn.ModuleList(Experts(13) for _ in range(2))
    return model


def ids() -> Tensor:
    """What the models take."""
    return torch.zeros(3, 7, dtype=torch.long)


def ids_and_labels() -> tuple[tuple[Tensor], dict[str, Tensor]]:
    """The same with labels, as (args, kwargs)."""
    return (ids(),), {"labels": ids()}


def cross_entropy(logits: Tensor) -> Tensor:
    """A loss function for `--loss`."""
    return F.cross_entropy(logits.flatten(0, 1).float(), ids().flatten())


class Asking(Model):
    """What it computes depends on values."""

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(input_ids[:, (input_ids[0] > 0).nonzero()[:, 0]], labels)


def asking() -> nn.Module:
    """Cannot be followed on fake tensors."""
    return Asking()


def all_frozen() -> nn.Module:
    """Nothing to train."""
    return Model().requires_grad_(False)


def floats() -> Tensor:
    """What the models do not take."""
    return torch.zeros(3, 7)
