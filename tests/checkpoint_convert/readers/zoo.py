"""A model with all that makes flat parameters hard: uneven sizes, tied and frozen parameters, buffers."""

from __future__ import annotations

import torch
from torch import nn


class Mlp(nn.Module):
    """A unit nested in a unit."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 11)
        self.down = nn.Linear(11, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.tanh(self.up(x)))


class Block(nn.Module):
    """Two layers, a norm, a one-element parameter, and buffers of three kinds."""

    def __init__(self, width: int = 7) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)
        self.mlp = Mlp(width)
        self.gain = nn.Parameter(torch.ones(1))
        self.register_buffer("scale", torch.full((3,), 0.5))
        self.register_buffer("count", torch.tensor(3, dtype=torch.int64))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.gain * self.mlp(self.mix(self.norm(x))) * self.scale[0]


class Adapter(nn.Module):
    """LoRA's way: a frozen base beside trainable factors."""

    def __init__(self, width: int = 7) -> None:
        super().__init__()
        self.base = nn.Linear(width, width)
        self.low = nn.Linear(width, 2, bias=False)
        self.high = nn.Linear(2, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.high(self.low(x))


class Ignored(nn.Module):
    """What FSDP1 is told to leave alone."""

    def __init__(self, width: int = 7) -> None:
        super().__init__()
        self.i = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.i(x.to(self.i.weight.dtype)).to(x.dtype)


class Zoo(nn.Module):
    """Embedding, blocks, an adapter, an ignored module, a free parameter, a tied head, a convolution."""

    def __init__(self, *, channels_last: bool = False) -> None:
        super().__init__()
        self.emb = nn.Embedding(23, 7)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.adapter = Adapter()
        self.frozen = Mlp(7)
        self.ign = Ignored()
        self.bias = nn.Parameter(torch.zeros(5))
        self.conv = nn.Conv2d(3, 5, 3)
        self.head = nn.Linear(7, 23, bias=False)
        self.head.weight = self.emb.weight
        if channels_last:
            self.conv.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.emb(tokens)
        for block in self.blocks:
            x = block(x)
        x = self.ign(self.adapter(x)) + self.frozen(x)
        picture = self.conv(x.new_ones(1, 3, 4, 4) * x.mean())
        return self.head(x) + self.bias.sum() + picture.mean()


def plain() -> Zoo:
    """The model of most jobs."""
    return Zoo()


def lora() -> Zoo:
    """With a frozen base in the adapter's unit (use_orig_params=True only)."""
    model = Zoo()
    model.adapter.base.requires_grad_(False)
    return model


def channels_last() -> Zoo:
    """With a non-contiguous convolution weight."""
    return Zoo(channels_last=True)


def build(factory: str) -> Zoo:
    """The same weights every time."""
    torch.manual_seed(0)
    model = {"plain": plain, "lora": lora, "channels_last": channels_last}[factory]()
    model.frozen.requires_grad_(False)
    return model
