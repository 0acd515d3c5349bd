"""Memory does not grow with the checkpoint; with the number of chunks only a little."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, sys
from pathlib import Path
from checkpoint_convert.convert import ConvertOptions, convert
from checkpoint_convert.model import Contents, DType, SourceFormat
from checkpoint_convert.optim_items import Zeros
from checkpoint_convert.write_options import OutputFormat, WriteOptions
from checkpoint_convert.readers.open import open_source

def reopen(path):
    return open_source([path])

count, rows, to, folder = int(sys.argv[1]), int(sys.argv[2]), OutputFormat(sys.argv[3]), Path(sys.argv[4])
model = {f"layers.{number}.weight": Zeros(DType.FLOAT32, (rows, 1024)) for number in range(count)}
first = ConvertOptions(WriteOptions(to=OutputFormat.TORCH), verify=False)
convert(Contents(SourceFormat.FULL, model), folder / "first.pt", first, reopen=reopen)
with open_source([folder / "first.pt"]) as contents:
    options = ConvertOptions(WriteOptions(to=to), jobs=2)
    done = convert(contents, folder / "out", options, reopen=reopen)
# Not ru_maxrss: a child inherits that of the process it was forked from.
[peak] = [line.split()[1] for line in Path("/proc/self/status").open() if line.startswith("VmHWM")]
print(json.dumps({"mib": int(peak) / 1024, "read": done.items.read_bytes}))
"""


def peak(count: int, rows: int, to: str, folder: Path) -> tuple[float, int]:
    """Peak resident memory in MiB of a whole process that converts and checks, and the bytes it read."""
    folder.mkdir()
    command = [sys.executable, "-c", PROGRAM, str(count), str(rows), to, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    return result["mib"], result["read"]


@pytest.mark.parametrize("to", ["dcp", "safetensors", "torch"])
def test_size_costs_no_memory(tmp_path: Path, to: str) -> None:
    small, read = peak(4, 512, to, tmp_path / "small")
    assert read == 8 * 2**20
    large, read = peak(4, 12800, to, tmp_path / "large")
    assert read == 200 * 2**20
    assert large < 64
    assert large - small < 4


def test_a_tensor_costs_a_few_kib(tmp_path: Path) -> None:
    few, _ = peak(100, 1, "dcp", tmp_path / "few")
    many, _ = peak(3100, 1, "dcp", tmp_path / "many")
    assert (many - few) * 1024 / 3000 < 6
