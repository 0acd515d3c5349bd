"""Conversion against its peers, in one run: wall time over `cp` of the same bytes, CPU time, peak memory.

    python benchmarks/convert.py --gib 3 --rounds 5 --dir /data/scratch [--cold]

Each contender is a process of its own, run in turn, `--rounds` times; the table shows medians. The source
is a Llama-shaped checkpoint with AdamW state (bf16 weights, fp32 moments), in the page cache; with `--cold`
it is put out of it before every run. "durable" rows flush to the disk before they end, as the tool does
without `--no-flush`; `cp` and torch do not. "10 MB" rows are the cost of a start.
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
target, gib, width = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
inner = width * 11 // 4
per_layer = 4 * width * width + 3 * width * inner + 2 * width
layers = max(1, int(gib * 2**30 / 10 / per_layer) - 1)
model, state = {}, {}
def add(name, *shape):
    model[name] = torch.randn(shape).bfloat16()
    state[name] = {"step": torch.tensor(3.0), "exp_avg": torch.randn(shape), "exp_avg_sq": torch.rand(shape)}
add("model.embed_tokens.weight", 16 * width, width)
for i in range(layers):
    p = f"model.layers.{i}."
    for n in "qkvo":
        add(p + f"self_attn.{n}_proj.weight", width, width)
    add(p + "mlp.gate_proj.weight", inner, width)
    add(p + "mlp.up_proj.weight", inner, width)
    add(p + "mlp.down_proj.weight", width, inner)
    add(p + "input_layernorm.weight", width)
    add(p + "post_attention_layernorm.weight", width)
group = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "params": list(model)}
torch.save({"model": model, "optim": {"state": state, "param_groups": [group]}}, target)
"""

TRAIN = """
import os, sys, warnings, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from checkpoint_convert import capture_layout
warnings.filterwarnings("ignore")
target, gib = sys.argv[1], float(sys.argv[2])
dist.init_process_group("gloo")
rank = dist.get_rank()
layers = max(1, int(gib * 2**30 / 12 / 1024**2))
model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(layers)))
model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(2, 1024)).sum().backward()
optimizer.step()
capture_layout(model, f"{target}/layout.json", optimizer)
with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
    state = model.state_dict()
torch.save({"model": state, "optim": optimizer.state_dict()}, f"{target}/rank{rank}.pt")
dist.barrier()
sys.stdout.flush()
os._exit(0)
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


MERGE_WEIGHTS = """
import sys
from accelerate.utils import merge_fsdp_weights
merge_fsdp_weights(sys.argv[1] + "/pytorch_model_fsdp_0", sys.argv[2])
"""


@dataclass
class Run:
    """One run of one contender."""

    wall_s: float
    cpu_s: float
    rss_mib: float


def python(code: str, *arguments: str) -> list[str]:
    """The command line of a peer."""
    return [sys.executable, "-W", "ignore", "-c", code, *arguments]


def tool(*arguments: str) -> list[str]:
    """The command line of this project."""
    return [sys.executable, "-m", "fsdp_migrate", "-q", "convert-ckpt", *arguments]


def rank_files(folder: Path, *arguments: str) -> list[str]:
    """Convert what the ranks of an FSDP1 job wrote; the layout is known, so that no torch is imported."""
    ranks = folder / "ranks"
    return tool(f"{ranks}/rank*.pt", str(folder / "out"), "--layout-from", f"{ranks}/layout.json", *arguments)


def contenders(folder: Path) -> dict[str, list[str]]:
    """Names and command lines; each writes `out` in the folder."""
    source, target, directory = str(folder / "full.pt"), str(folder / "out"), str(folder / "dcp")
    return {
        "cp": ["cp", source, target],
        "cp, durable": ["dd", f"if={source}", f"of={target}", "bs=1M", "conv=fsync", "status=none"],
        "torch_save_to_dcp": python(TORCH_TO_DCP, source, target),
        "full -> dcp, 1 job, no check, no flush": tool(
            source, target, "--jobs", "1", "--no-verify", "--no-flush"
        ),
        "full -> dcp, 2 jobs, no check, no flush": tool(
            source, target, "--jobs", "2", "--no-verify", "--no-flush"
        ),
        "full -> dcp, 1 job, no check": tool(source, target, "--jobs", "1", "--no-verify"),
        "full -> dcp, 2 jobs, no check": tool(source, target, "--jobs", "2", "--no-verify"),
        "full -> dcp, 1 job": tool(source, target, "--jobs", "1"),
        "full -> dcp, 2 jobs": tool(source, target, "--jobs", "2"),
        "full -> dcp for 64 ranks, 2 jobs, no check": tool(
            source, target, "--jobs", "2", "--no-verify", "--shards", "64"
        ),
        "cp of rank files": ["cp", "-r", str(folder / "ranks"), target],
        "rank files (LOCAL) -> dcp, 1 job, no check": rank_files(folder, "--jobs", "1", "--no-verify"),
        "rank files (LOCAL) -> dcp, 2 jobs, no check": rank_files(folder, "--jobs", "2", "--no-verify"),
        "rank files (LOCAL) -> dcp, 2 jobs": rank_files(folder, "--jobs", "2"),
        "dcp_to_torch_save": python(DCP_TO_TORCH, directory, target),
        "dcp -> torch, 2 jobs": tool(directory, target, "--to", "torch", "--jobs", "2"),
        "accelerate merge-weights": python(MERGE_WEIGHTS, str(folder / "accelerate"), target),
        "dcp -> safetensors, model, 2 jobs": tool(
            directory, target, "--to", "safetensors", "--only", "model", "--jobs", "2"
        ),
        "dcp -> dcp --link": tool(directory, target, "--link"),
        "10 MB -> dcp, 1 job": tool(str(folder / "small.pt"), target, "--jobs", "1"),
    }


def measure(command: list[str], folder: Path, *, cold: bool) -> Run:
    """Run a command to its end."""
    os.sync()  # nobody pays for the writing of the one before
    if cold:
        for path in folder.rglob("*"):
            put_out(path)
    out = folder / "out"
    started = time.monotonic()
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command}: exit status {process.returncode}")
    remove(out)
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def put_out(path: Path) -> None:
    """Drop a file's pages from the cache."""
    if path.is_file():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


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
    parser.add_argument("--cold", action="store_true", help="put the source out of the page cache first")
    parser.add_argument("--json", type=Path, help="write the runs here")
    options = parser.parse_args()
    folder = options.dir / "fsdp-migrate-benchmark"
    folder.mkdir(parents=True)
    try:
        results = run_rounds(folder, options.gib, options.rounds, options.only, cold=options.cold)
    finally:
        shutil.rmtree(folder)
    show(results)
    if options.json:
        record = {name: [vars(run) for run in runs] for name, runs in results.items()}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def run_rounds(folder: Path, gib: float, rounds: int, only: str, *, cold: bool) -> dict[str, list[Run]]:
    """Every contender once per round, so that a busy minute hits all alike."""
    full = folder / "full.pt"
    make = [sys.executable, "-c", MAKE]
    subprocess.run([*make, str(full), str(gib), "1024"], check=True)
    subprocess.run([*make, str(folder / "small.pt"), "0.01", "128"], check=True)
    (folder / "ranks").mkdir()
    program = folder / "train.py"
    program.write_text(TRAIN)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(program)]
    subprocess.run([*launch, str(folder / "ranks"), str(gib)], check=True, env=ENVIRONMENT)
    for name, preset in (("dcp", "torch"), ("accelerate", "accelerate")):
        command = tool(str(full), str(folder / name), "--layout", preset)
        subprocess.run(command, check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    print(f"source: {full.stat().st_size / 2**30:.2f} GiB, {os.cpu_count()} cores", flush=True)
    results: dict[str, list[Run]] = {}
    for _ in range(rounds):
        for name, command in contenders(folder).items():
            if only in name or name.startswith("cp"):
                results.setdefault(name, []).append(measure(command, folder, cold=cold))
    return results


def show(results: dict[str, list[Run]]) -> None:
    """A table of medians; ratios are taken within each round."""
    print(f"{'':<44}{'wall s':>8}{'x cp':>7}{'x durable':>11}{'CPU s':>8}{'MiB':>8}")
    for name, runs in results.items():
        pairs = list(zip(runs, results["cp"], results["cp, durable"], strict=True))
        times_cp = statistics.median(run.wall_s / cp.wall_s for run, cp, _ in pairs)
        times_durable = statistics.median(run.wall_s / durable.wall_s for run, _, durable in pairs)
        wall = statistics.median(run.wall_s for run in runs)
        cpu = statistics.median(run.cpu_s for run in runs)
        rss = max(run.rss_mib for run in runs)
        print(f"{name:<44}{wall:>8.2f}{times_cp:>7.2f}{times_durable:>11.2f}{cpu:>8.2f}{rss:>8.0f}")


if __name__ == "__main__":
    main()
