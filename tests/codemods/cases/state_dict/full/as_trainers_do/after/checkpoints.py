from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)

from fsdp2_sharding import load_full_optimizer

# create singleton saving policies to avoid making over and over
save_policy = StateDictOptions(full_state_dict=True, cpu_offload=True)


def save_model(model, rank, path):
    """Whole weights, on rank 0 only."""
    cpu_state = get_model_state_dict(model, options=save_policy)
    print(f"saving process: rank {rank}  done w model state_dict")

    if rank == 0:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        torch.save(cpu_state, path)


def save_optimizer(model, optimizer, rank, path):
    # called from all ranks
    optim_state = get_optimizer_state_dict(
        model,
        optimizer,
        options=StateDictOptions(full_state_dict=True, cpu_offload=True),
    )
    if rank == 0:
        torch.save(optim_state, path)


def load_optimizer(model, optimizer, rank, path):
    full_osd = torch.load(path, weights_only=False) if rank == 0 else None
    load_full_optimizer(model, optimizer, full_osd, broadcast=True)


class Trainer:
    def __init__(self, policy, optimizer, scheduler, out):
        self.policy = policy
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.rank = dist.get_rank()
        self.out = out

    def write_state_dict(self, state, name):
        torch.save({"step_idx": 3, "state": state}, self.out / name)

    def save(self):
        config = StateDictOptions(full_state_dict=True, cpu_offload=True)
        policy_state_dict = get_model_state_dict(self.policy, options=config)

        if self.rank == 0:
            self.write_state_dict(policy_state_dict, "policy.pt")
        del policy_state_dict
        dist.barrier()

        config = StateDictOptions(full_state_dict=True, cpu_offload=True)
        optimizer_state_dict = get_optimizer_state_dict(
            self.policy, self.optimizer, options=config
        )

        if self.rank == 0:
            self.write_state_dict(optimizer_state_dict, "optimizer.pt")
        del optimizer_state_dict
        dist.barrier()

        if self.rank == 0:
            self.write_state_dict(self.scheduler.state_dict(), "scheduler.pt")
        dist.barrier()

    def save_both(self):
        full_on_rank0 = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = {
            "model": get_model_state_dict(self.policy, options=full_on_rank0),
            "optim": get_optimizer_state_dict(
                self.policy, self.optimizer, options=full_on_rank0
            ),
        }
        if self.rank == 0:
            torch.save(state, self.out / "both.pt")
