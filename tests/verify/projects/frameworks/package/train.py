"""Two models and two optimizers, an own argument parser and an own process group."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from toy import Toy, tokens

from package.sharding import shard


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, required=True)
    rate = parser.parse_args().rate
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    models = [shard(Toy()) for _ in range(2)]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=rate) for model in models]
    rows = tokens()[dist.get_rank() :: dist.get_world_size()]
    for step in range(3):
        batch = rows[4 * step : 4 * step + 4]
        for model, optimizer in zip(models, optimizers, strict=True):
            cross_entropy(model(batch).flatten(0, 1), batch.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            models[0](batch)
        reshard = getattr(models[0], "reshard", None) or (lambda: models[0]._handle.reshard(True))
        reshard()
        torch.save({"step": step}, f"step{step}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
