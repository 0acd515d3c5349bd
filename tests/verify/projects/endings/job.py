"""Trains a classifier that is evaluated and saved in between and in the end; ends as it is told to."""

import argparse
import os
import signal
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

Shard = Callable[[nn.Module], nn.Module]
Whole = Callable[[nn.Module], dict]


def given() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--dies", default="", help="ARM:STEP:HOW, several of them separated by commas")
    parser.add_argument("--mistake", default="")
    return parser.parse_args()


def build() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.ReLU()) for _ in range(2)]
    return nn.Sequential(*layers, nn.Linear(8, 4))


def end(dies: str, arm: str, step: int) -> None:
    for who, when, how in (each.split(":") for each in filter(None, dies.split(","))):
        if who != arm or int(when) != step:
            continue
        if how == "raises" and dist.get_rank() == 1:
            raise ValueError("bad \x1b[31mbatch\x1b[0m")
        if how == "killed" and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while how == "hangs" and dist.get_rank() == 1:
            time.sleep(0.1)


def train(arm: str, shard: Shard, whole: Whole) -> None:
    dist.init_process_group("gloo")
    choice = given()
    model = shard(build())
    rate = 0.02 if choice.mistake == "rate" and arm == "candidate" else 0.01
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, choice.steps + 1):
        end(choice.dies, arm, step)
        x = torch.randn(4, 8, generator=data)
        nn.functional.cross_entropy(model(x), torch.randint(0, 4, (4,), generator=data)).backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.save(whole(model), f"step{step}-rank{dist.get_rank()}.pt")
    end(choice.dies, arm, 0)
    dist.destroy_process_group()
