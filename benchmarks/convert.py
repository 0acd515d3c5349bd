"""Conversion against its peers, in one run: wall time over `cp` of the same bytes, CPU time, peak memory.

    python benchmarks/convert.py --gib 3 --rounds 3 --dir /data/scratch

Each contender is a process of its own, run in turn, `--rounds` times; the table shows medians. The source
is a Llama-shaped checkpoint with AdamW state (bf16 weights, fp32 moments), in the page cache. "durable" rows
flush to the disk before they end, as the tool always does; torch does not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is compiled once, not at every start

MAKE = """
import sys, torch
target, gib = sys.argv[1], float(sys.argv[2])
torch.manual_seed(0)
width = 1024
per_layer = 4 * width * width + 3 * width * 2816 + 2 * width
layers = max(1, int(gib * 2**30 / 10 / per_layer) - 1)
model, state = {}, {}
def add(name, *shape):
    model[name] = torch.randn(shape).bfloat16()
    state[name] = {"step": torch.tensor(3.0), "exp_avg": torch.randn(shape), "exp_avg_sq": torch.rand(shape)}
add("model.embed_tokens.weight", 16000, width)
for i in range(layers):
    p = f"model.layers.{i}."
    for n in "qkvo":
        add(p + f"self_attn.{n}_proj.weight", width, width)
    add(p + "mlp.gate_proj.weight", 2816, width)
    add(p + "mlp.up_proj.weight", 2816, width)
    add(p + "mlp.down_proj.weight", width, 2816)
    add(p + "input_layernorm.weight", width)
    add(p + "post_attention_layernorm.weight", width)
group = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "params": list(model)}
torch.save({"model": model, "optim": {"state": state, "param_groups": [group]}}, target)
"""

TORCH_TO_DCP = """
import sys
from torch.distributed.checkpoint.format_utils import torch_save_to_dcp
torch_save_to_dcp(sys.argv[1], sys.argv[2])
"""

DCP_TO_TORCH = """
import sys
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
dcp_to_torch_save(sys.argv[1], sys.argv[2])
"""


@dataclass
class Run:
    """One run of one contender."""

    wall_s: float
    cpu_s: float
    rss_mib: float


def tool(*arguments: str) -> list[str]:
    """The command line of this project."""
    return [sys.executable, "-m", "fsdp_migrate", "-q", "convert-ckpt", *arguments]


def contenders(full: Path, directory: Path, out: Path) -> dict[str, list[str]]:
    """Names and command lines; each writes `out`."""
    source, target = str(full), str(out)
    return {
        "cp": ["cp", source, target],
        "cp, durable": ["dd", f"if={source}", f"of={target}", "bs=1M", "conv=fsync", "status=none"],
        "torch_save_to_dcp": [sys.executable, "-W", "ignore", "-c", TORCH_TO_DCP, source, target],
        "full -> dcp, 1 job, no check": tool(source, target, "--jobs", "1", "--no-verify"),
        "full -> dcp, 2 jobs, no check": tool(source, target, "--jobs", "2", "--no-verify"),
        "full -> dcp, 1 job, checked": tool(source, target, "--jobs", "1"),
        "full -> dcp, 2 jobs, checked": tool(source, target, "--jobs", "2"),
        "full -> dcp for 64 ranks, 2 jobs": tool(
            source, target, "--jobs", "2", "--no-verify", "--shards", "64"
        ),
        "dcp_to_torch_save": [sys.executable, "-W", "ignore", "-c", DCP_TO_TORCH, str(directory), target],
        "dcp -> torch, 2 jobs, checked": tool(str(directory), target, "--to", "torch", "--jobs", "2"),
        "dcp -> safetensors, 2 jobs, checked": tool(
            str(directory), target, "--to", "safetensors", "--jobs", "2"
        ),
    }


def measure(command: list[str], out: Path) -> Run:
    """Run a command to its end."""
    os.sync()  # nobody pays for the writing of the one before
    started = time.monotonic()
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command}: exit status {process.returncode}")
    remove(out)
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def remove(path: Path) -> None:
    """Delete an output of either kind."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.with_name(path.name + ".conversion.json").unlink(missing_ok=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=1.0, help="size of the checkpoint")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, required=True, help="scratch directory, four times the size")
    parser.add_argument("--only", default="", help="contenders whose name contains this (cp always runs)")
    parser.add_argument("--json", type=Path, help="write the runs here")
    options = parser.parse_args()
    folder = options.dir / "fsdp-migrate-benchmark"
    folder.mkdir(parents=True)
    try:
        results = run_rounds(folder, options.gib, options.rounds, options.only)
    finally:
        shutil.rmtree(folder)
    show(results)
    if options.json:
        record = {name: [vars(run) for run in runs] for name, runs in results.items()}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def run_rounds(folder: Path, gib: float, rounds: int, only: str) -> dict[str, list[Run]]:
    """Every contender once per round, so that a busy minute hits all alike."""
    full, directory, out = folder / "full.pt", folder / "dcp", folder / "out"
    subprocess.run([sys.executable, "-c", MAKE, str(full), str(gib)], check=True)
    subprocess.run(tool(str(full), str(directory)), check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    print(f"source: {full.stat().st_size / 2**30:.2f} GiB, {os.cpu_count()} cores", flush=True)
    results: dict[str, list[Run]] = {}
    for _ in range(rounds):
        for name, command in contenders(full, directory, out).items():
            if only in name or name.startswith("cp"):
                results.setdefault(name, []).append(measure(command, out))
    return results


def show(results: dict[str, list[Run]]) -> None:
    """A table of medians; ratios are taken within each round."""
    print(f"{'':<38}{'wall s':>8}{'x cp':>7}{'x durable':>11}{'CPU s':>8}{'MiB':>8}")
    for name, runs in results.items():
        pairs = list(zip(runs, results["cp"], results["cp, durable"], strict=True))
        times_cp = statistics.median(run.wall_s / cp.wall_s for run, cp, _ in pairs)
        times_durable = statistics.median(run.wall_s / durable.wall_s for run, _, durable in pairs)
        wall = statistics.median(run.wall_s for run in runs)
        cpu = statistics.median(run.cpu_s for run in runs)
        rss = max(run.rss_mib for run in runs)
        print(f"{name:<38}{wall:>8.2f}{times_cp:>7.2f}{times_durable:>11.2f}{cpu:>8.2f}{rss:>8.0f}")


if __name__ == "__main__":
    main()
