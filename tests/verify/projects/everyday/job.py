"""What many trainers do at once: fp16 with a scaler and the loss in fp16, a second model that is frozen in
turns, activation checkpointing after sharding, checkpoints by torch.save and by torch.distributed.checkpoint.
"""

import argparse
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

WIDTH = 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def want_gradients(model, wanted):
    for parameter in model.parameters():
        parameter.requires_grad_(wanted)


def save(states, model, optimizer):
    """Files of their own: each of the two that go to one directory would be written over by the other."""
    with tempfile.TemporaryDirectory() as folder:
        folders = [folder]
        dist.broadcast_object_list(folders)
        dcp.save(states.sharded(model, optimizer), checkpoint_id=folders[0])
        for _ in range(2):  # the second with a configuration that was changed
            full = states.full(model, optimizer)
            if dist.get_rank() == 0:
                torch.save(full, f"{folder}/full.pt")
        if dist.get_rank() == 0:
            subprocess.run([sys.executable, "-c", "pass"], check=True)
        dist.barrier()


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mistake", default="")
    return parser.parse_args()


def train(shard, states, scaler, mistake=""):
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    generator = shard(nn.Sequential(Block(), Block(), nn.Linear(WIDTH, WIDTH)), torch.float16)
    apply_activation_checkpointing(generator, check_fn=lambda module: isinstance(module, Block))
    critic = shard(nn.Sequential(Block(), nn.Linear(WIDTH, 1)), None)
    makes = torch.optim.SGD(generator.parameters(), lr=1e-2, momentum=0.9)
    judges = torch.optim.Adam(critic.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(2):
        if mistake == "state-lost" and step == 1:
            judges = torch.optim.Adam(critic.parameters(), lr=1e-2)
        if mistake == "save-early" and step == 1:
            save(states, generator, makes)
        real, noise = torch.randn(2, 4, WIDTH, generator=data).cuda().unbind()
        with torch.no_grad():
            made = generator(noise).float()
        judges.zero_grad()
        (critic(made).mean() - critic(real).mean()).backward()
        if mistake != "turn-lost":
            judges.step()
        want_gradients(critic, False)
        makes.zero_grad()
        made = generator(noise)
        # Far above what fp16 holds once it is scaled.
        loss = 20 + made.square().mean() + 1e-3 * critic(made.float()).mean().half()
        scaler.scale(loss).backward()
        scaler.step(makes)
        scaler.update()
        want_gradients(critic, True)
        if step == 1 and mistake != "save-early":
            save(states, generator, makes)
