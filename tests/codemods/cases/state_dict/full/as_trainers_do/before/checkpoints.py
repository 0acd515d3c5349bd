from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

# create singleton saving policies to avoid making over and over
save_policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)


def save_model(model, rank, path):
    """Whole weights, on rank 0 only."""
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, save_policy):
        cpu_state = model.state_dict()
        print(f"saving process: rank {rank}  done w model state_dict")

        if rank == 0:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            torch.save(cpu_state, path)


def save_optimizer(model, optimizer, rank, path):
    # called from all ranks
    optim_state = FSDP.full_optim_state_dict(model, optimizer)
    if rank == 0:
        torch.save(optim_state, path)


def load_optimizer(model, optimizer, rank, path):
    full_osd = torch.load(path, weights_only=False) if rank == 0 else None
    sharded_osd = FSDP.scatter_full_optim_state_dict(full_osd, model)
    optimizer.load_state_dict(sharded_osd)


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
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(
            self.policy, StateDictType.FULL_STATE_DICT, state_dict_config=config
        ):
            policy_state_dict = self.policy.state_dict()

        if self.rank == 0:
            self.write_state_dict(policy_state_dict, "policy.pt")
        del policy_state_dict
        dist.barrier()

        config = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(
            self.policy,
            StateDictType.FULL_STATE_DICT,
            optim_state_dict_config=config,
        ):
            optimizer_state_dict = FSDP.optim_state_dict(self.policy, self.optimizer)

        if self.rank == 0:
            self.write_state_dict(optimizer_state_dict, "optimizer.pt")
        del optimizer_state_dict
        dist.barrier()

        if self.rank == 0:
            self.write_state_dict(self.scheduler.state_dict(), "scheduler.pt")
        dist.barrier()

    def save_both(self):
        with FSDP.state_dict_type(
            self.policy,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(rank0_only=True, offload_to_cpu=True),
            FullOptimStateDictConfig(rank0_only=True, offload_to_cpu=True),
        ):
            state = {
                "model": self.policy.state_dict(),
                "optim": FSDP.optim_state_dict(self.policy, self.optimizer),
            }
        if self.rank == 0:
            torch.save(state, self.out / "both.pt")
