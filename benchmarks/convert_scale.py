"""Sizes that no test can hold: sparse checkpoints in the shape of a 70B model, of 30 GB, of 200,000 tensors.

    python benchmarks/convert_scale.py --dir /data/scratch [--convert-gib 1 30] [--tensors 0]

The sources are `torch.save` files with real headers and holes for bytes, so that they take no disk. Planning
(`--dry-run`) is measured for all of them. Converting is measured for dense shapes of several sizes, whose
time should grow with the bytes and whose memory should not, and for many small tensors.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from checkpoint_convert.items import Items, TensorItem
from checkpoint_convert.model import DType
from checkpoint_convert.values import KeyPath, Leaf
from checkpoint_convert.writers.output import Output
from checkpoint_convert.writers.torch_file import TorchFileLayout

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)


@dataclass(frozen=True, slots=True)
class Hole:
    """A tensor of which only the header is written."""

    dtype: DType
    shape: tuple[int, ...]

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        """Never asked for."""
        raise AssertionError("a hole has no bytes")


def llama(
    layers: int, width: int, inner: int, vocabulary: int = 128256, kv: int = 1024
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a Llama."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, width)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        for name, rows in (("q", width), ("k", kv), ("v", kv)):
            shapes[f"{at}.self_attn.{name}_proj.weight"] = (rows, width)
        shapes[f"{at}.self_attn.o_proj.weight"] = (width, width)
        shapes[f"{at}.mlp.gate_proj.weight"] = (inner, width)
        shapes[f"{at}.mlp.up_proj.weight"] = (inner, width)
        shapes[f"{at}.mlp.down_proj.weight"] = (width, inner)
        shapes[f"{at}.input_layernorm.weight"] = (width,)
        shapes[f"{at}.post_attention_layernorm.weight"] = (width,)
    return {**shapes, "model.norm.weight": (width,), "lm_head.weight": (vocabulary, width)}


def experts(tensors: int, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a mixture of experts with that many weights."""
    return {
        f"model.layers.{number // 1536}.mlp.experts.{number % 1536 // 3}.w{number % 3 + 1}.weight": (
            rows,
            columns,
        )
        for number in range(tensors)
    }


def write(path: Path, shapes: dict[str, tuple[int, ...]], *, optimizer: bool) -> None:
    """A file of bf16 weights, with fp32 AdamW moments if asked for."""
    tensors = [
        TensorItem(("model", name), Hole(DType.BFLOAT16, shape), DType.BFLOAT16)
        for name, shape in shapes.items()
    ]
    objects: list[Leaf] = []
    if optimizer:
        for name, shape in shapes.items():
            for state in ("exp_avg", "exp_avg_sq"):
                item = TensorItem(("optim", "state", name, state), Hole(DType.FLOAT32, shape), DType.FLOAT32)
                tensors.append(item)
        options = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
        group: KeyPath = ("optim", "param_groups", 0)
        objects = [Leaf((*group, key), value) for key, value in options.items()]
        objects.append(Leaf((*group, "params"), list(shapes)))
    layout = TorchFileLayout(Items(tuple(tensors), (), tuple(objects), (), ()), path.name)
    out = Output(path.parent, [path.name], durable=False)
    layout.begin(out)
    for number in range(len(tensors)):
        for span in layout.spans(number):
            layout.close_span(out, number, span, 0)  # no CRC: there are no bytes
    layout.finish(out)
    out.settle()


def written(path: Path, *shape: object) -> int:
    """Write a source in a process of its own, so that ours stays small; returns its bytes."""
    command = [sys.executable, __file__, "--source", str(path), *map(str, shape)]
    subprocess.run(command, env=ENVIRONMENT, check=True)
    return path.stat().st_size


def measure(*arguments: str) -> tuple[float, float, float]:
    """Wall time and CPU time in seconds, and the peak memory in MiB, of one conversion."""
    command = [sys.executable, "-m", "fsdp_migrate", "-q", "convert-ckpt", *arguments]
    started = time.monotonic()
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command}: exit status {process.returncode}")
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def report(folder: Path, name: str, source: Path, size_bytes: int, *options: str) -> None:
    """Measure, print, clean up."""
    target = folder / "out"
    wall, cpu, memory = measure(str(source), str(target), *options)
    if target.is_dir():
        shutil.rmtree(target)
    else:  # one file, or nothing after a dry run
        target.unlink(missing_ok=True)
    print(f"{name:<48}{size_bytes / 2**30:>9.1f}{wall:>9.2f}{cpu:>8.2f}{memory:>8.0f}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, required=True, help="scratch directory")
    parser.add_argument("--convert-gib", type=float, nargs="*", default=[2, 8], help="sizes to convert")
    parser.add_argument(
        "--tensors", type=int, default=200_000, help="weights of the mixture of experts; 0: none"
    )
    options = parser.parse_args()
    folder = options.dir / "fsdp-migrate-scale"
    folder.mkdir(parents=True)
    source = folder / "source.pt"
    print(f"{'':<48}{'GiB':>9}{'wall s':>9}{'CPU s':>8}{'MiB':>8}")
    try:
        size = written(source, "llama", 80, 8192, 28672, 128256)
        report(folder, "70B and AdamW, --dry-run", source, size, "--dry-run")
        report(folder, "70B and AdamW, --dry-run --shards 64", source, size, "--dry-run", "--shards", "64")
        source.unlink()
        if options.tensors:
            size = written(source, "experts", options.tensors, 16, 64)
            report(folder, f"{options.tensors:,} tensors, --dry-run", source, size, "--dry-run")
            report(folder, f"{options.tensors:,} tensors -> dcp", source, size)
            other = ("--layout", "torchtitan")
            report(folder, f"{options.tensors:,} tensors -> dcp for torchtitan", source, size, *other)
            report(folder, f"{options.tensors:,} tensors -> safetensors", source, size, "--to", "safetensors")
            report(folder, f"{options.tensors:,} tensors -> torch", source, size, "--to", "torch")
            source.unlink()
        for gib in options.convert_gib:
            layers = max(1, round(gib * 2**30 / 10 / 218e6))
            size = written(source, "llama", layers, 4096, 14336, 1024)
            report(
                folder, f"{layers} layers of 8B and AdamW -> dcp, not checked", source, size, "--no-verify"
            )
            source.unlink()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    if sys.argv[1] == "--source":
        numbers = list(map(int, sys.argv[4:]))
        if sys.argv[3] == "llama":
            write(Path(sys.argv[2]), llama(*numbers), optimizer=True)
        else:
            write(Path(sys.argv[2]), experts(*numbers), optimizer=False)
    else:
        main()
