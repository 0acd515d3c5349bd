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
_APART = {"fp32": 2e-4, "bf16": 2e-2}
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
    train.run("fsdp1", ReferenceConfig(**json.loads(options)))
    if os.environ["RANK"] == "0":
        Path(target).write_text(json.dumps(losses), encoding="utf-8")
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def losses_of(forker: RankForker, ranks: int, as_zero: bool, options: dict[str, Any]) -> list[float]:
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
        for name, options in VARIANTS.items():
            config = {**options, "steps": given.steps}
            plain, zero = (losses_of(forker, given.ranks, as_zero, config) for as_zero in (False, True))
            apart = max(abs(a - b) / abs(a) for a, b in zip(plain, zero, strict=True))
            failed = failed or not apart <= _APART[options.get("dtype", "fp32")]
            shown = (" ".join(f"{loss:.5f}" for loss in losses) for losses in (plain, zero))
            print(f"| {name} | {' | '.join(shown)} | {apart:.1e} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        del sys.argv[1]
        rank_program()
    else:
        sys.exit(main())
