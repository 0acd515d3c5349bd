"""A residual network over tokens whose blocks take an fp32 table as a side input, as rotary positions are."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        scaled = (x * table).to(x.dtype)
        return x + self.down(torch.relu(self.up(scaled)))


class Model(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width, vocabulary = 16, 50
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, vocabulary, bias=False)
        if options.tied:
            self.head.weight = self.embed.weight
        if options.unused:
            self.spare = nn.Linear(width, 3)
        if options.frozen:
            self.blocks[0].requires_grad_(False)
        self.register_buffer("table", torch.linspace(0.9, 1.1, width * 8).view(8, width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, table=self.table) if block is self.blocks[1] else block(x, self.table)
        return self.head(x)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--reduce", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--clip", type=float, default=0.0)
    parser.add_argument("--optimizer", choices=["adamw", "sgd"], default="adamw")
    parser.add_argument("--seed-by-rank", action="store_true")
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--frozen", action="store_true")
    parser.add_argument("--unused", action="store_true")
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--drop-first", action="store_true")
    parser.add_argument("--strategy", default="FULL_SHARD")
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--flat", action="store_true")
    parser.add_argument("--resume", default="")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--mistake", default="")
    return parser.parse_args()


def optimizer_for(parameters: list, choice: argparse.Namespace) -> torch.optim.Optimizer:
    if choice.groups:
        parameters = [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
    if choice.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    return torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1)


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten())
