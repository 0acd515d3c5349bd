"""Trains a classifier that is evaluated and saved in between and in the end; ends as it is told to."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

Shard = Callable[[nn.Module], nn.Module]
Whole = Callable[[nn.Module], dict]
Load = Callable[[nn.Module, dict], object]


def given() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--dies", default="", help="ARM:STEP:HOW, several of them separated by commas")
    parser.add_argument("--mistake", default="")
    parser.add_argument("--out", default="out")
    parser.add_argument("--parts", action="store_true", help="save each rank's part of the optimizer")
    parser.add_argument("--spawn", action="store_true", help="start the ranks itself")
    parser.add_argument("--exits", action="store_true", help="end by os._exit(0)")
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


def begin(run: Callable[[], None]) -> None:
    """As torchrun starts it, or in processes of its own."""
    if "--spawn" in sys.argv:
        torch.multiprocessing.spawn(spawned, args=(2, run), nprocs=2)
    else:
        run()


def spawned(rank: int, ranks: int, run: Callable[[], None]) -> None:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
    run()


def only_in_candidate(choice: argparse.Namespace, arm: str) -> None:
    if arm != "candidate" and choice.mistake:
        choice.mistake = ""


def train(arm: str, shard: Shard, whole: Whole, load: Load) -> None:
    dist.init_process_group("gloo")
    choice = given()
    only_in_candidate(choice, arm)
    if choice.out.startswith("@"):
        choice.out = Path(choice.out[1:]).read_text()
    model = shard(build())
    resume(model, load, choice)
    rate = 0.02 if choice.mistake == "rate" else 0.01
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, choice.steps + 1):
        end(choice.dies, arm, step)
        x = torch.randn(4, 8, generator=data)
        nn.functional.cross_entropy(model(x), torch.randint(0, 4, (4,), generator=data)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 2:
            evaluate(model, choice, step)
        save(whole(model), choice, step)
        if choice.parts:
            torch.save(optimizer.state_dict(), f"optimizer-rank{dist.get_rank()}.pt")
    end(choice.dies, arm, 0)
    evaluate(model, choice, 0)
    if choice.exits:
        os._exit(0)
    dist.destroy_process_group()


def evaluate(model: nn.Module, choice: argparse.Namespace, step: int) -> None:
    mistake = choice.mistake if step == 0 or choice.mistake in ("mode", "unwritten") else ""
    model.train(mistake == "mode")
    data = torch.Generator().manual_seed(9 if mistake == "data" else 8)
    with torch.no_grad():
        x, y = torch.randn(6, 8, generator=data), torch.randint(0, 4, (6,), generator=data)
        with torch.autocast("cpu", torch.bfloat16, enabled=mistake == "precision"):
            loss = nn.functional.cross_entropy(model(x), y).item()
    model.train()
    if dist.get_rank() == 0 and mistake != "unwritten":
        with Path(choice.out, "losses.csv").open("a") as stream:
            stream.write("" if stream.tell() else "step,eval_loss\n")
            stream.write(f"{step},{loss * (1.001 if mistake == 'written' else 1)}\n")


def save(whole: dict, choice: argparse.Namespace, step: int) -> None:
    """Into a directory with what an earlier run has left there, which is gone on from."""
    out = Path(choice.out)
    if choice.mistake == "last-save" and step == choice.steps:
        whole = {name: tensor * 1.5 for name, tensor in whole.items()}
    if dist.get_rank() == 0:
        out.mkdir(exist_ok=True)
        torch.save(whole, out / "last.pt")
        torch.save(whole, f"step{step}.pt")
    dist.barrier()


def resume(model: nn.Module, load: Load, choice: argparse.Namespace) -> None:
    """From the directory, where there is something in it."""
    last = Path(choice.out, "last.pt")
    if last.exists():
        load(model, torch.load(last))
