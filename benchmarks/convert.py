"""Conversion against its peers, in one run: wall time over a copy of the same bytes, CPU time, peak memory.

    python benchmarks/convert.py --gib 3 --dir /data/scratch [--rounds 3] [--cold] [--peers DIR] [--verl DIR]

Each contender is a process of its own, run in turn, `--rounds` times; the table shows medians of ratios that
are taken within each round. The source is a Llama-shaped checkpoint with AdamW state (bf16 weights, fp32
moments), in the page cache; with `--cold` it is put out of it before every run, and everything else with it.
What the tool flushes to the disk is compared with a copy that is flushed, the rest (`--no-flush`) with `cp`,
rank files with `cp` of rank files; where a source has more bytes or fewer than what is copied, the time of
the copy counts per byte. The slow peers run in the first round alone. "10 MB" rows are the cost of a start.
The second "x copy" is of processor seconds, the least of each: others on the machine blur them less.
Takes about a quarter of an hour with `--gib 3` on two cores.

Every run starts a few seconds after its place was cleared. A virtual machine returns what has been free for a
moment to its host, and whoever fills it next pays for getting it again, up to three times the cost of a copy:
a program that starts at once still finds the pages of the output before, and one that starts a little later
does not.
`--peers` and `--verl` say where DeepSpeed and verl are (`convert_peers`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from convert_peers import Peers
from convert_report import Contender, Run, show, show_peers
from convert_sources import ENVIRONMENT, make_sources

HOST_TAKES_MEMORY = 3.0  # s

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


def contenders(folder: Path, peers: Peers) -> dict[str, Contender]:
    """By name: one without "no flush" flushes what it writes, one without "no check" reads it back."""
    source, target, directory = str(folder / "full.pt"), str(folder / "out"), str(folder / "dcp")
    found = {
        "cp": Contender(["cp", source, target]),
        "cp, flushed": Contender(
            ["dd", f"if={source}", f"of={target}", "bs=1M", "conv=fsync", "status=none"]
        ),
        "cp of rank files": Contender(["cp", "-r", str(folder / "ranks"), target], "ranks"),
        "torch_save_to_dcp": Contender(python(TORCH_TO_DCP, source, target), is_slow=True),
    }
    quick = {" no check": ["--no-verify"], "": []}
    for flush, unflushed in ((", no flush", ["--no-flush"]), ("", [])):
        for check, unchecked in quick.items():
            for jobs, limit in ((1, 1.4), (2, 1.1)):
                name = f"{jobs} job{'s' * (jobs > 1)}{',' * bool(check)}{check}{flush}"
                options = ["--jobs", str(jobs), *unchecked, *unflushed]
                limit = limit if check else 2.0
                found[f"full -> dcp, {name}"] = Contender(tool(source, target, *options), limit=limit)
                found[f"rank files -> dcp, {name}"] = Contender(rank_files(folder, *options), "ranks", limit)
    options = ["--jobs", "2", "--no-flush"]
    merge = python(MERGE_WEIGHTS, str(folder / "accelerate"), target)
    found |= {
        "full -> dcp for 64 ranks, 2 jobs, no check, no flush": Contender(
            tool(source, target, *options, "--no-verify", "--shards", "64")
        ),
        "dcp_to_torch_save": Contender(python(DCP_TO_TORCH, directory, target), "dcp", is_slow=True),
        "accelerate merge-weights": Contender(merge, "accelerate/pytorch_model_fsdp_0", is_slow=True),
    }
    for check, unchecked in quick.items():
        name = f"2 jobs{',' * bool(check)}{check}, no flush"
        to_torch = tool(directory, target, "--to", "torch", *options, *unchecked)
        model = tool(directory, target, "--to", "safetensors", "--only", "model", *options, *unchecked)
        found[f"dcp -> torch, {name}"] = Contender(to_torch, "dcp")
        found[f"dcp -> safetensors, model, {name}"] = Contender(model, "accelerate/pytorch_model_fsdp_0")
    return (
        found
        | work_of_peers(folder, peers)
        | {
            "dcp -> dcp --link": Contender(tool(directory, target, "--link"), "dcp"),
            "10 MB -> dcp, 1 job": Contender(
                tool(str(folder / "small.pt"), target, "--jobs", "1"), "small.pt"
            ),
        }
    )


def work_of_peers(folder: Path, peers: Peers) -> dict[str, Contender]:
    """DeepSpeed and verl, where they are, and the tool at the same work."""
    target, found = str(folder / "out"), {}
    for name, (command, reads) in peers.commands(folder, target).items():
        found[name] = Contender(command, reads, is_slow=True)
        for check, unchecked in ((" no check", ["--no-verify"]), ("", [])):
            quick = ["--jobs", "2", "--no-flush", "--to", "safetensors", *unchecked]
            ending = f"2 jobs{',' * bool(check)}{check}, no flush"
            if reads == "zero":
                ours = Contender(rank_files(folder, "--only", "model", *quick), "zero")
                found[f"rank files -> safetensors, model, {ending}"] = ours
            else:
                files = str(folder / "verl" / "model_world_size_*.pt")
                ours = Contender(tool(files, target, "--dtype", "bfloat16", *quick), "verl")
                found[f"verl's files -> safetensors, bf16, {ending}"] = ours
    return found


def bytes_below(path: Path) -> int:
    """Of a file, or of the files of a directory."""
    return sum(
        file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()
    )


def measure(command: list[str], folder: Path, *, cold: bool, peers: Peers) -> Run:
    """Run a command to its end; what the one before wrote is gone, and its memory the host's again."""
    remove(folder / "out")
    os.sync()  # nobody pays for the writing of the one before
    if cold:
        for path in folder.rglob("*"):
            put_out(path)
    time.sleep(HOST_TAKES_MEMORY)
    paths = filter(None, (ENVIRONMENT["PYTHONPATH"], peers.path))
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths), "TQDM_DISABLE": "1"}
    started = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command}: exit status {process.returncode}")
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
    path.with_name("out.conversion.json").unlink(missing_ok=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=1.0, help="size of the checkpoint")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, required=True, help="scratch directory, four times the size")
    parser.add_argument(
        "--only",
        default="",
        help="contenders whose name contains one of these, with | between; copies always run",
    )
    parser.add_argument("--cold", action="store_true", help="put the source out of the page cache first")
    parser.add_argument("--peers", type=Path, help="folder of installed packages with deepspeed in it")
    parser.add_argument("--verl", type=Path, help="checkout of verl")
    parser.add_argument("--json", type=Path, help="write the runs here")
    options = parser.parse_args()
    peers = Peers(options.peers, options.verl)
    folder = options.dir / "fsdp-migrate-benchmark"
    folder.mkdir(parents=True)
    try:
        make_sources(folder, options.gib, peers)
        results, sizes = run_rounds(folder, options.rounds, options.only, cold=options.cold, peers=peers)
        chosen = contenders(folder, peers)
    finally:
        shutil.rmtree(folder)
    show(results, chosen, sizes)
    show_peers(results)
    if options.json:
        record = {name: [vars(run) for run in runs] for name, runs in results.items()}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def run_rounds(
    folder: Path, rounds: int, only: str, *, cold: bool, peers: Peers
) -> tuple[dict[str, list[Run]], dict[str, int]]:
    """Every contender once per round, so that a busy minute hits all alike."""
    chosen = contenders(folder, peers)
    sizes = {one.reads: bytes_below(folder / one.reads) for one in chosen.values()}

    def run(one: Contender) -> Run:
        return measure(one.command, folder, cold=cold, peers=peers)

    run(chosen["cp"])  # the first after so much was written waits for it
    results: dict[str, list[Run]] = {}
    for number in range(rounds):
        for name, one in chosen.items():
            is_wanted = name.startswith("cp") or any(part in name for part in only.split("|"))
            if is_wanted and not (one.is_slow and number):
                results.setdefault(name, []).append(run(one))
    return results, sizes


if __name__ == "__main__":
    main()
