"""What the probes of `verify` cost: steps of the reference job with and without them, in alternating runs.

    python benchmarks/probe_cost.py [--size small] [--ranks 2] [--rounds 5] [--sequence 64] [--output FILE]

Every round runs each arm twice, once with the probes that `verify` attaches at its default settings, once
with none, and the other way round in the next. A step lasts from one return of `optimizer.step()` to the
next, and takes as long as it does on the slowest rank; its processor seconds are those of all ranks. Prints a
Markdown table; exit status 1 when the probes of an arm take more than a tenth of the processor time of a step
of 200 ms or longer (wall time is too uneven where a machine has other work).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, get_args

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fsdp_migrate.demo.ranks import RankForker, RankJob  # noqa: E402
from fsdp_migrate.errors import JobError  # noqa: E402
from fsdp_migrate.verify.model import LaunchOptions  # noqa: E402
from fsdp_migrate.verify.reference_job.config import Arm, ReferenceConfig, Size  # noqa: E402

WARM_UP, COUNTED = 2, 8
ARMS: tuple[Arm, ...] = ("fsdp1", "fsdp2")
LIMIT, LONG_S = 0.10, 0.2
_RUN_S = 300.0


def rank_program() -> None:
    """One rank of one run: train, and leave the moments at which steps ended."""
    import torch.distributed as dist
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from fsdp_migrate.verify import fixed_order
    from fsdp_migrate.verify.probes.attach import attach_all
    from fsdp_migrate.verify.probes.recorder import Recorder
    from fsdp_migrate.verify.probes.session import Session
    from fsdp_migrate.verify.reference_job import train

    arm, options, probed, folder = sys.argv[1:]
    config, rank = ReferenceConfig(**json.loads(options)), os.environ["RANK"]
    session = None
    if probed == "probed":
        recorder = Recorder(Path(folder, "record", f"rank{rank}"), LaunchOptions().full_limit_bytes)
        alive = Path(folder, f"alive{rank}", "alive")
        alive.parent.mkdir()
        session = Session(recorder, config.steps, alive, lambda: None)
        attach_all(session)
    moments: list[tuple[float, float]] = []
    register_optimizer_step_post_hook(lambda *_: moments.append((time.perf_counter(), time.process_time())))
    if int(os.environ["WORLD_SIZE"]) > 2:
        fixed_order.divide_once_in_fsdp1()
    dist.init_process_group("gloo")
    train.run(arm, config)  # type: ignore[arg-type]
    if session is not None:
        session.finish("the job ended")
    Path(folder, f"moments{rank}.json").write_text(json.dumps(moments), encoding="utf-8")
    dist.barrier()


def run(
    forker: RankForker, ranks: int, arm: str, config: dict[str, Any], probed: bool
) -> list[tuple[float, float]]:
    """Seconds and processor seconds of the counted steps of one run.

    Raises:
        SystemExit: a rank failed or did not end.
    """
    with tempfile.TemporaryDirectory(prefix="probe-cost-") as folder:
        words = ("--rank", arm, json.dumps(config), "probed" if probed else "bare", folder)
        try:
            me = str(Path(__file__).resolve())
            forker.run(RankJob(me, words, ranks, Path(folder), Path(folder), _RUN_S))
        except JobError as error:
            raise SystemExit(f"{arm}: {error}") from None
        of_ranks = [json.loads(Path(folder, f"moments{rank}.json").read_text()) for rank in range(ranks)]
    return [_step(of_ranks, at) for at in range(WARM_UP, WARM_UP + COUNTED)]


def _step(of_ranks: list[list[tuple[float, float]]], at: int) -> tuple[float, float]:
    apart = [(each[at + 1][0] - each[at][0], each[at + 1][1] - each[at][1]) for each in of_ranks]
    return max(wall for wall, _ in apart), sum(processor for _, processor in apart)


def measure(ranks: int, rounds: int, config: ReferenceConfig) -> list[dict[str, Any]]:
    """Medians of both arms, bare and probed."""
    options = {key: getattr(config, key) for key in ("size", "batch", "sequence", "dtype", "steps")}
    found: list[dict[str, Any]] = []
    with RankForker((), nproc=ranks, environment={}) as forker:
        for arm in ARMS:
            runs: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for number in range(rounds):
                for probed in (False, True) if number % 2 == 0 else (True, False):
                    steps = run(forker, ranks, arm, options, probed)
                    runs[probed].append((_mean(steps, 0), _mean(steps, 1)))
            found.append({"arm": arm, **_row(runs)})
            print(f"{arm} is done", file=sys.stderr)
    return found


def _mean(steps: list[tuple[float, float]], at: int) -> float:
    return statistics.mean(step[at] for step in steps)


def _row(runs: dict[bool, list[tuple[float, float]]]) -> dict[str, float]:
    """Medians over the runs of a run's mean, for not every step is recorded alike; what the probes add."""
    row: dict[str, float] = {}
    for at, what in enumerate(("wall", "processor")):
        bare, probed = (statistics.median(means[at] for means in runs[which]) for which in (False, True))
        row |= {f"{what}_bare_s": bare, f"{what}_probed_s": probed, f"{what}_cost": probed / bare - 1}
    return row


def main() -> int:
    """Measure, print the table, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=get_args(Size), default="small")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--output", type=Path, help="write the figures here as JSON")
    given = parser.parse_args()
    steps = WARM_UP + COUNTED + 1
    config = ReferenceConfig(size=given.size, batch=given.batch, sequence=given.sequence, steps=steps)
    rows = measure(given.ranks, given.rounds, config)
    print(f"{given.size}, {given.ranks} ranks, {given.batch} x {given.sequence} tokens on each:\n")
    print("| arm | step | with probes | more | processor time | with probes | more |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        cells = [
            cell
            for what in ("wall", "processor")
            for cell in (
                f"{1e3 * row[f'{what}_bare_s']:.0f} ms",
                f"{1e3 * row[f'{what}_probed_s']:.0f} ms",
                f"{row[f'{what}_cost']:.1%}",
            )
        ]
        print(f"| {row['arm']} | {' | '.join(cells)} |")
    if given.output is not None:
        given.output.write_text(json.dumps({**vars(given), "output": None, "rows": rows}, indent=1))
    return int(any(row["processor_cost"] > LIMIT and row["wall_bare_s"] >= LONG_S for row in rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        del sys.argv[1]
        rank_program()
    else:
        sys.exit(main())
