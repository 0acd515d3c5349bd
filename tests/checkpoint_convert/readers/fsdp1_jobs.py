"""Train the zoo under FSDP1 on gloo and save it in every way FSDP1 has, for the readers to be held against.

Run as a program: `python fsdp1_jobs.py OUT`. Each job gets a folder with the ranks' files, `truth.pt` and
`truth_optim.pt` (the full state dicts FSDP1 itself gathers, without offloading, which is wrong on CPU).
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # an optimizer would import it, in every rank
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import CustomPolicy, ModuleWrapPolicy
from zoo import Adapter, Block, Mlp, build

from checkpoint_convert import capture_layout


@dataclass(frozen=True)
class Job:
    """One FSDP1 run."""

    name: str
    world: int
    orig: bool
    factory: str = "plain"
    param_dtype: torch.dtype | None = None
    strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD
    mesh: tuple[int, ...] = ()
    groups: bool = False
    optimizer: str = "adamw"
    ignore: bool = True
    dtype: torch.dtype | None = None
    whole: type | None = None  # units of this class are NO_SHARD


def jobs() -> list[Job]:
    """All of them; names end in the world size and use_orig_params."""
    made = []
    for world in (1, 2, 3, 4):
        for orig in (False, True):
            made.append(Job(f"base_{world}_{_word(orig)}", world, orig))
    for orig in (False, True):
        word = _word(orig)
        made += [
            Job(f"half_3_{word}", 3, orig, param_dtype=torch.bfloat16),
            Job(f"channels_last_3_{word}", 3, orig, factory="channels_last"),
            Job(f"noshard_2_{word}", 2, orig, strategy=ShardingStrategy.NO_SHARD),
            Job(f"sgd_2_{word}", 2, orig, optimizer="sgd"),
            Job(f"bf16_2_{word}", 2, orig, dtype=torch.bfloat16),
            Job(f"hybrid_4_{word}", 4, orig, strategy=ShardingStrategy.HYBRID_SHARD),
            Job(f"mesh_4_{word}", 4, orig, strategy=ShardingStrategy.HYBRID_SHARD, mesh=(2, 2)),
            Job(f"mesh_3_{word}", 3, orig, mesh=(3,)),
            Job(f"inner_3_{word}", 3, orig, whole=Adapter),
        ]
        made.append(Job(f"names_3_{word}", 3, orig, optimizer="named"))
        made.append(Job(f"adafactor_3_{word}", 3, orig, optimizer="adafactor"))
    made.append(Job("stateless_2_orig", 2, True, optimizer="plain_sgd"))
    made.append(Job("groups_3_orig", 3, True, groups=True))
    made.append(Job("lora_3_orig", 3, True, factory="lora"))
    made.append(Job("amsgrad_3_orig", 3, True, optimizer="amsgrad", param_dtype=torch.float16))
    return made


def _word(orig: bool) -> str:
    return "orig" if orig else "flat"


def wrap(job: Job, groups: Any) -> FSDP:
    """The model under FSDP1."""
    model = build(job.factory)
    if job.dtype is not None:
        model.to(job.dtype)
    options: dict[str, Any] = {}
    if job.mesh:
        names = ("replicate", "shard")[-len(job.mesh) :]
        options["device_mesh"] = init_device_mesh("cpu", job.mesh, mesh_dim_names=names)
    elif job.strategy is ShardingStrategy.HYBRID_SHARD:
        options["process_group"] = groups
    if job.param_dtype is not None:
        options["mixed_precision"] = MixedPrecision(param_dtype=job.param_dtype)
    # The frozen Mlp is a unit of its own, so flat parameters stay uniform in requires_grad.
    return FSDP(
        model,
        auto_wrap_policy=policy(job),
        ignored_modules=[model.ign] if job.ignore else None,
        sharding_strategy=job.strategy,
        use_orig_params=job.orig,
        device_id=torch.device("cpu"),
        **options,
    )


def policy(job: Job) -> Any:
    """The classes that are units, those of `job.whole` not sharded."""
    units = {Block, Mlp, Adapter}
    if job.whole is None:
        return ModuleWrapPolicy(units)

    def chosen(module: torch.nn.Module) -> bool | dict[str, Any]:
        own = type(module)
        return {"sharding_strategy": ShardingStrategy.NO_SHARD} if own is job.whole else own in units

    return CustomPolicy(chosen)


def make_optimizer(job: Job, model: FSDP) -> torch.optim.Optimizer:
    """Groups split by dimension need original parameters."""
    if job.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if job.optimizer == "plain_sgd":
        return torch.optim.SGD(model.parameters(), lr=0.1)
    if job.optimizer == "adafactor":
        return torch.optim.Adafactor(model.parameters(), lr=1e-2)
    if job.optimizer == "named":
        return torch.optim.AdamW(model.named_parameters(), lr=1e-2)  # groups then list `param_names`
    amsgrad = job.optimizer == "amsgrad"
    if not job.groups:
        return torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=amsgrad)
    # FSDP1 flattens to one dimension between steps: names, not dimensions, must tell.
    decay = [p for name, p in model.named_parameters() if not name.endswith("bias")]
    rest = [p for name, p in model.named_parameters() if name.endswith("bias")]
    return torch.optim.AdamW(
        [{"params": rest, "weight_decay": 0.0}, {"params": decay, "weight_decay": 0.1}], lr=1e-2
    )


def train(model: FSDP, optimizer: torch.optim.Optimizer, rank: int) -> None:
    """Three steps; every rank sees the same tokens."""
    for step in range(3):
        tokens = torch.arange(12).roll(step).view(2, 6) % 23
        model(tokens).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def save(job: Job, model: FSDP, optimizer: torch.optim.Optimizer, rank: int, out: Path) -> None:
    """Every kind of checkpoint that this configuration can write."""
    torch.save(optimizer.state_dict(), out / f"optim_raw_{rank}.pt")
    torch.save({name: p.detach() for name, p in model.named_parameters()}, out / f"named_{rank}.pt")
    full = FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=False),
        FullOptimStateDictConfig(offload_to_cpu=False),
    )
    with full:
        state, state_optim = model.state_dict(), FSDP.optim_state_dict(model, optimizer)
        if rank == 0:
            capture_layout(model, out / "layout.json", optimizer)
            torch.save(state, out / "truth.pt")
            torch.save(state_optim, out / "truth_optim.pt")
            nested = {"model": state, "optimizer": state_optim, "epoch": 3, "args": {"lr": 1e-2}}
            torch.save(nested, out / "nested.pt")
            by_number = FSDP.rekey_optim_state_dict(
                state_optim, OptimStateKeyType.PARAM_ID, build(job.factory)
            )
            torch.save({"state_dict": state, "optimizer_states": [by_number]}, out / "lightning.ckpt")
    if job.world > 1 and not job.mesh and not (job.name.startswith("hybrid") and rank > 1):
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT, LocalStateDictConfig()):
            local = model.state_dict()
            torch.save(local, out / f"local_{rank}.pt")
            both = {
                "model": local,
                "optimizer": optimizer.state_dict(),
                "epoch": 3,
                "rng": torch.tensor([rank]),
            }
            torch.save(both, out / f"both_{rank}.pt")
            if job.name.startswith("base_3"):
                dcp.save({"model": local}, checkpoint_id=out / "dcp_local")
    if job.name.startswith("base_3"):
        legacy_full = FSDP.full_optim_state_dict(model, optimizer, rank0_only=False)
        torch.save(legacy_full, out / f"legacy_full_rank{rank}.pt")
        torch.save(FSDP.sharded_optim_state_dict(model, optimizer), out / f"legacy_sharded_rank{rank}.pt")
    if not job.name.startswith("channels_last"):
        with FSDP.state_dict_type(
            model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(), ShardedOptimStateDictConfig()
        ):
            sharded = {"model": model.state_dict(), "optim": FSDP.optim_state_dict(model, optimizer)}
            torch.save({**sharded, "rng": torch.get_rng_state(), "step": 3}, out / f"sharded_{rank}.pt")
            dcp.save(sharded, checkpoint_id=out / "dcp")
            # Accelerate's and the Trainer's way: two directories in one, each with its own root.
            outer = out / "checkpoint-3"
            dcp.save({"model": sharded["model"]}, checkpoint_id=outer / "pytorch_model_fsdp_0")
            dcp.save({"optimizer": sharded["optim"]}, checkpoint_id=outer / "optimizer_0")
            torch.save({"last_epoch": 3}, outer / "scheduler.bin")
            (outer / "trainer_state.json").write_text("{}")


def run_job(job: Job, rank: int, groups: Any, out: Path) -> None:
    """One job on one rank."""
    out.mkdir(parents=True, exist_ok=True)
    model = wrap(job, groups)
    optimizer = make_optimizer(job, model)
    train(model, optimizer, rank)
    save(job, model, optimizer, rank, out)


def run_rank(rank: int, world: int, out: Path) -> None:
    """All jobs of one world size on one rank."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(out / f"store_{world}"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    groups = None
    if world == 4:
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        across = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        groups = (pairs[rank // 2], across[rank % 2])
    for job in jobs():
        if job.world == world:
            run_job(job, rank, groups, out / job.name)
            dist.barrier()


def main(out: Path) -> None:
    """Fork the ranks of one world size after another; torch is imported once."""
    out.mkdir(parents=True, exist_ok=True)
    for world in sorted({job.world for job in jobs()}):
        children = []
        for rank in range(world):
            child = os.fork()
            if child == 0:
                code = 0
                try:
                    run_rank(rank, world, out)
                except BaseException:
                    traceback.print_exc()
                    code = 1
                sys.stderr.flush()
                os._exit(code)  # gloo's threads abort a regular exit now and then
            children.append(child)
        failed = [child for child in children if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
        if failed:
            raise SystemExit(f"{len(failed)} of {world} ranks failed")
    (out / "done").touch()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
