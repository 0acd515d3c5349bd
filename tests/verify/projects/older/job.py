"""A job whose ranks share one batch of eight samples a step, however many they are; from torch 2.1 on."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

WIDTH, VOCABULARY, BATCH = 8, 20, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 13)
        self.down = nn.Linear(13, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.block = Block()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("scale", torch.tensor([0.5]))

    def forward(self, tokens):
        return self.head(self.block(self.embed(tokens)) * self.scale)


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mistake", default="")
    parser.add_argument("--micro", type=int, default=BATCH)
    return parser.parse_args()


def optimizer_for(model, choice):
    decay = 0.2 if choice.mistake == "decay" else 0.1
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=decay)


def train(shard, accumulating, clip, choice):
    """Two steps of gradient accumulation and clipping, and a scheduler."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Model()
    early = optimizer_for(model, choice)
    model = shard(model)
    optimizer = early if choice.mistake == "optimizer-first" else optimizer_for(model, choice)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    data = torch.Generator().manual_seed(1 if choice.mistake == "data" else 0)
    for _ in range(2):
        tokens = torch.randint(0, VOCABULARY, (BATCH, 6), generator=data)
        parts = tokens.chunk(dist.get_world_size())[dist.get_rank()].split(choice.micro)
        for number, part in enumerate(parts, 1):
            with accumulating(model, number == len(parts)):
                loss = F.cross_entropy(model(part).flatten(0, 1), part.flatten())
                (loss if choice.mistake == "not-divided" else loss / len(parts)).backward()
        if choice.mistake != "not-clipped":
            clip(model, 0.1)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
