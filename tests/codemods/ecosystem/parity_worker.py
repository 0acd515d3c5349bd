"""One rank of a job that trains a small model as Accelerate would with the file before, then with the file
after.

Accelerate itself refuses FSDP without an accelerator device, so its two ways to prepare a model are called
here directly: FSDP1 with the arguments of `Accelerator.prepare_model`, FSDP2 through `fsdp2_prepare_model`.

torchrun --nproc-per-node 4 parity_worker.py CASES.json OUT
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, ShardingStrategy

CPU = torch.device("cpu")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 12)
        self.down = nn.Linear(12, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    _no_split_modules = ("Block",)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Block(), Block(), Block())
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x))


def fsdp1(model: Model, env: dict[str, str]) -> nn.Module:
    """As `Accelerator.prepare_model` wraps; on CPU the groups of hybrid sharding have to be given."""
    plugin = FullyShardedDataParallelPlugin()
    plugin.set_auto_wrap_policy(model)
    group = None
    if plugin.sharding_strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2):
        rank = dist.get_rank()
        within = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        across = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        group = (within[rank // 2], across[rank % 2])
    return FullyShardedDataParallel(
        model,
        process_group=group,
        sharding_strategy=plugin.sharding_strategy,
        auto_wrap_policy=plugin.auto_wrap_policy,
        use_orig_params=env["FSDP_USE_ORIG_PARAMS"] == "true",
        device_id=CPU,
    )


def fsdp2(model: Model, env: dict[str, str]) -> nn.Module:
    """As `Accelerator._prepare_fsdp2` shards."""
    config = ParallelismConfig() if env.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true" else None
    accelerator = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=FullyShardedDataParallelPlugin()),
        parallelism_config=config,
        torch_device_mesh=config.build_device_mesh("cpu") if config else None,
        mixed_precision="no",
        is_main_process=dist.get_rank() == 0,
        device=CPU,
    )
    return fsdp2_prepare_model(accelerator, model)


def trained(env: dict[str, str]) -> dict[str, object]:
    """Losses of this rank, and the size of the group that holds one copy of the parameters."""
    old = {key: os.environ.get(key) for key in env}
    os.environ.update(env)
    torch.manual_seed(0)
    model = (fsdp2 if env["FSDP_VERSION"] == "2" else fsdp1)(Model(), env)
    units = sum(isinstance(module, FSDPModule | FullyShardedDataParallel) for module in model.modules())
    shards = sum(p.untyped_storage().nbytes() for p in map(_local, model.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(dist.get_rank() + 1)
    losses = []
    for _ in range(4):
        loss = model(torch.randn(5, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    for key, value in old.items():
        os.environ.pop(key)
        if value is not None:
            os.environ[key] = value
    return {"losses": losses, "units": units, "bytes": shards}


def _local(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter.detach()


def main() -> None:
    cases, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    dist.init_process_group("gloo")
    found = {name: [trained(env) for env in both] for name, both in cases.items()}
    (out / f"rank{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo may abort at exit


if __name__ == "__main__":
    main()
