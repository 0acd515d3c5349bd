"""Whether the bundled job of FSDP1 computes the same as DeepSpeed's ZeRO (`verify --also deepspeed`).

    python benchmarks/under_deepspeed.py [--ranks 2] [--steps 4]

Needs deepspeed in this environment (`DS_BUILD_OPS=0 pip install deepspeed`), which is none of the project's:
its first start on a CPU compiles an extension for minutes. Runs each variant under FSDP1 and as ZeRO from
equal weights and data, and compares the losses of rank 0, the first of which follows from the weights alone
and the later ones from gradients, clipping and optimizer too. Exit status 1 when they are further apart than
rounding makes them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fsdp_migrate.demo.ranks import RankForker, RankJob  # noqa: E402
from fsdp_migrate.verify.reference_job.config import ReferenceConfig  # noqa: E402

VARIANTS: dict[str, dict[str, Any]] = {
    "full shard": {},
    "two micro-batches": {"accumulate": 2},
    "clipped hard": {"clip": 0.05},
    "gradients sharded": {"strategy": "shard_grad_op"},
    "not sharded": {"strategy": "no_shard"},
    "tied": {"tied": True},
    "bf16": {"dtype": "bf16"},
}
SMALL = ("offload", "offload zero2", "fp16", "fp16 scaler clip offload", "fp16 scaler zero2")
"""What the bundled job has no words for, in a small one."""
_APART = {"fp32": 2e-4, "bf16": 2e-2, "fp16": 2e-3}
_RUN_S = 560.0


def rank_program() -> None:
    """One rank of one run; rank 0 leaves its losses."""
    import torch.distributed as dist

    from fsdp_migrate.verify import fsdp1_on_cpu, partitioned
    from fsdp_migrate.verify.reference_job import train

    as_zero, options, target = sys.argv[1:]
    losses: list[float] = []

    class Losses(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found = re.match(r"step \d+: loss (.*)", record.getMessage())
            losses.extend([float(found[1])] if found else [])

    log = logging.getLogger("fsdp_migrate.verify.reference_job.train")
    log.setLevel(logging.INFO)
    log.addHandler(Losses())
    fsdp1_on_cpu.apply(lambda _text: None)
    if as_zero == "zero":
        partitioned.apply(lambda _text: None, "cpu")
    dist.init_process_group("gloo")
    given = json.loads(options)
    if isinstance(given, str):
        losses += small_job(given.split())
    else:
        train.run("fsdp1", ReferenceConfig(**given))
    if os.environ["RANK"] == "0":
        Path(target).write_text(json.dumps(losses), encoding="utf-8")
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def small_job(words: list[str]) -> list[float]:
    """Losses of a small model under FSDP1, with what the words ask for."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    torch.manual_seed(0)
    half = MixedPrecision(torch.float16, torch.float16)
    model = FullyShardedDataParallel(
        nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 50)),
        device_id=torch.device("cpu"),
        use_orig_params=True,
        cpu_offload=CPUOffload(offload_params="offload" in words),
        mixed_precision=half if "fp16" in words else None,
        sharding_strategy=ShardingStrategy["SHARD_GRAD_OP" if "zero2" in words else "FULL_SHARD"],
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = ShardedGradScaler(device="cpu", init_scale=1024.0, enabled="scaler" in words)
    data = torch.Generator().manual_seed(dist.get_rank())
    losses: list[float] = []
    for _ in range(5):
        tokens = torch.randint(0, 50, (8, 6), generator=data)
        loss = nn.functional.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if "clip" in words:
            model.clip_grad_norm_(0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def losses_of(forker: RankForker, ranks: int, as_zero: bool, options: dict[str, Any] | str) -> list[float]:
    """Of one run."""
    with tempfile.TemporaryDirectory(prefix="under-deepspeed-") as folder:
        target = Path(folder, "losses.json")
        words = ("--rank", "zero" if as_zero else "fsdp1", json.dumps(options), str(target))
        me = str(Path(__file__).resolve())
        forker.run(RankJob(me, words, ranks, Path(folder), Path(folder), _RUN_S))
        found: list[float] = json.loads(target.read_text(encoding="utf-8"))
        return found


def main() -> int:
    """Run, print a table, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    failed = False
    print("| variant | losses under FSDP1 | as ZeRO | apart by at most |\n|---|---|---|---|")
    with RankForker((), nproc=given.ranks, environment={}) as forker:
        jobs: dict[str, dict[str, Any] | str] = {
            **{name: {**options, "steps": given.steps} for name, options in VARIANTS.items()},
            **{words: words for words in SMALL},
        }
        for name, config in jobs.items():
            if isinstance(config, str):
                dtype = "fp16" if "fp16" in config else "fp32"
            else:
                dtype = config.get("dtype", "fp32")
            plain, zero = (losses_of(forker, given.ranks, as_zero, config) for as_zero in (False, True))
            apart = max(abs(a - b) / abs(a) for a, b in zip(plain, zero, strict=True))
            failed = failed or not apart <= _APART[dtype]
            shown = (" ".join(f"{loss:.5f}" for loss in losses) for losses in (plain, zero))
            print(f"| {name} | {' | '.join(shown)} | {apart:.1e} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        del sys.argv[1]
        rank_program()
    else:
        sys.exit(main())
