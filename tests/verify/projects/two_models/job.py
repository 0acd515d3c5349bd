"""A critic is given what a generator makes, each with an optimizer of its own; both are clipped."""

import argparse

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mistake", default="")
    return parser.parse_args()


def train(shard, clip, choice):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    generator, critic = (
        shard(nn.Sequential(Block(), Block())),
        shard(nn.Sequential(Block(), nn.Linear(WIDTH, 1))),
    )
    both = choice.mistake == "holds-more"
    held = [*generator.parameters(), *critic.parameters()] if both else list(generator.parameters())
    makes = torch.optim.AdamW(held, lr=1e-2)
    judges = torch.optim.RMSprop(critic.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(3):
        if choice.mistake == "data" and step == 2:
            data.manual_seed(100 + dist.get_rank())
        real, noise = torch.randn(2, 4, WIDTH, generator=data).unbind()
        made = generator(noise)
        judges.zero_grad()
        (critic(made.detach()).mean() - critic(real).mean()).backward()
        clip(critic, 0.1)
        judges.step()
        makes.zero_grad()
        (-critic(made).mean()).backward()
        clip(generator, 0.1)
        makes.step()
