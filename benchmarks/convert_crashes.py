"""Conversions killed at random moments: is the destination always absent, marked unfinished, or right?

    python benchmarks/convert_crashes.py --dir /data/scratch --kills 50

A conversion is started and killed (SIGKILL) after a random time, over and over. After every kill the
destination must be absent, or complete and equal to an undisturbed conversion. Each run goes on with what the
killed ones left; after every fifth kill a run is let through to its end and compared.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

MAKE = """
import sys, torch
torch.manual_seed(0)
mib = int(sys.argv[2])
weights = {f"layers.{n}.weight": torch.randn(512, 512) for n in range(mib)}
torch.save({"model": weights, "epoch": 3}, sys.argv[1])
"""


def command(source: Path, target: Path, to: str) -> list[str]:
    """A conversion by two threads."""
    arguments = [str(source), str(target), "--to", to, "--jobs", "2"]
    return [sys.executable, "-m", "fsdp_migrate", "-q", "convert-ckpt", *arguments]


def contents(path: Path) -> dict[str, bytes]:
    """Every file of an output."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def run_through(source: Path, target: Path, to: str) -> float:
    """Convert undisturbed; the seconds it took."""
    started = time.monotonic()
    subprocess.run(command(source, target, to), check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def remove(target: Path) -> None:
    """Delete an output and its report."""
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    target.with_name(f"{target.name}.conversion.json").unlink(missing_ok=True)


def kill_one(source: Path, target: Path, to: str, wait_s: float) -> None:
    """Start a conversion and kill it."""
    process = subprocess.Popen(
        command(source, target, to), env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    time.sleep(wait_s)
    process.kill()
    _, errors = process.communicate()
    if process.returncode not in (0, -9):
        raise SystemExit(f"exit status {process.returncode}: {errors.decode()}")


def state_of(target: Path, expected: dict[str, bytes]) -> str:
    """Absent, unfinished or complete; ends the program where it is anything else."""
    if os.path.lexists(target):
        if contents(target) != expected:
            raise SystemExit(f"{target} is there, and is not what was to be written")
        return "complete"
    partial = target.with_name(f"{target.name}.partial")
    if not partial.exists():
        return "absent"
    names = {path.name for path in partial.iterdir()}
    if names and not names & {".fsdp-migrate-partial", "conversion.json"}:
        raise SystemExit(f"{partial} is not marked: {sorted(names)}")
    return "unfinished"


def main() -> None:
    """Kill, look, count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, required=True, help="scratch directory")
    parser.add_argument("--kills", type=int, default=50, help="per form of output")
    parser.add_argument("--mib", type=int, default=192, help="size of the checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    folder = options.dir / "fsdp-migrate-crashes"
    folder.mkdir(parents=True)
    source, target = folder / "full.pt", folder / "out"
    try:
        subprocess.run([sys.executable, "-c", MAKE, str(source), str(options.mib)], check=True)
        for to in ("dcp", "torch", "safetensors"):
            seconds = max(run_through(source, target, to) for _ in range(2) if not remove(target))
            expected = contents(target)
            remove(target)
            counts = {"absent": 0, "unfinished": 0, "complete": 0}
            for number in range(1, options.kills + 1):
                kill_one(source, target, to, chance.uniform(0.1, 1.1) * seconds)
                counts[state_of(target, expected)] += 1
                if number % 5 == 0 and not target.exists():
                    run_through(source, target, to)
                    if state_of(target, expected) != "complete":
                        raise SystemExit("a run after kills did not complete")
                remove(target)
            print(f"{to}: {options.kills} kills, {counts}, none wrong", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
