"""Train with FSDP (FullyShardedDataParallel): `FSDP(model)` shards it."""

import argparse

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from model import Block, Model, batch, loss_of

STRATEGIES = ("ddp", "fsdp", "FSDP", "FullyShardedDataParallel")
USAGE = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(model)  # in a string
"""


def parser():
    options = argparse.ArgumentParser(description="FSDP training")
    options.add_argument("--fsdp", default="full_shard auto_wrap", help="FSDP mode")
    options.add_argument("--fsdp-wrap", choices=STRATEGIES)  # FSDP or DDP
    return options


def uses_fsdp(strategy):
    # FSDP(model) is what "fsdp" stands for
    return strategy == "fsdp" or strategy == "FSDP"


def main(out):
    options = parser().parse_args(["--fsdp", "full_shard"])
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    loss = loss_of(model, batch(0))
    loss.backward()
    said = [USAGE, options.fsdp, uses_fsdp("fsdp"), parser().format_help()]
    return {"model": model, "loss": loss.item(), "said": said, "manual": __doc__}
