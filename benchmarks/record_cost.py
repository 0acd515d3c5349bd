"""What `verify --record` costs a rank of a run of 70 billion parameters: time of a step, size of a record.

    python benchmarks/record_cost.py [--ranks 64] [--tokens 8192] [--mfu 0.4] [--output FILE]

Shapes are those of Llama 3 70B under FSDP2, of which rank 1 holds its rows. Sketches of one layer's parts and
of the embedding's are made of real tensors on one core, and taken times the number of layers; the record is
written, and its bytes are counted the same way. A step's time is computed: 6 x parameters x tokens of a rank
over the chip's peak times MFU. On a GPU the time of sketches, and of the two checksums of weights that a step
takes, is computed too, from the bytes they move over the memory's bandwidth, of which seven tenths are taken
to be reached: no GPU is used here. Prints a Markdown table; exit status 1 when that share is over one
percent, or a rank's record over 20 MB.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fsdp_migrate.verify.probes.recorder import Recorder  # noqa: E402
from fsdp_migrate.verify.probes.shards import Slot  # noqa: E402
from fsdp_migrate.verify.probes.sketch import sketches  # noqa: E402
from fsdp_migrate.verify.schedule import is_due  # noqa: E402

WIDTH, HIDDEN, KEYS, VOCABULARY, LAYERS = 8192, 28672, 1024, 128256, 80
LAYER: dict[str, tuple[int, ...]] = {
    "self_attn.q_proj.weight": (WIDTH, WIDTH),
    "self_attn.k_proj.weight": (KEYS, WIDTH),
    "self_attn.v_proj.weight": (KEYS, WIDTH),
    "self_attn.o_proj.weight": (WIDTH, WIDTH),
    "mlp.gate_proj.weight": (HIDDEN, WIDTH),
    "mlp.up_proj.weight": (HIDDEN, WIDTH),
    "mlp.down_proj.weight": (WIDTH, HIDDEN),
    "input_layernorm.weight": (WIDTH,),
    "post_attention_layernorm.weight": (WIDTH,),
}
ENDS: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (VOCABULARY, WIDTH),
    "lm_head.weight": (VOCABULARY, WIDTH),
    "model.norm.weight": (WIDTH,),
}
PEAK, BANDWIDTH, REACHED = 989e12, 3.35e12, 0.7
"""Of an H100: dense bfloat16 FLOP/s, bytes/s of memory, and the part of it that kernels reach."""
MOVED = {torch.float32: 44, torch.bfloat16: 32}
"""Bytes that a sketch of one element moves on a GPU: its bytes as they are, as float32 written and read, the
element (widened to float32 first) for its square and for its signs."""
LIMIT, LIMIT_BYTES = 0.01, 20e6

Held = list[tuple[Slot, torch.Tensor]]


def part(name: str, shape: tuple[int, ...], ranks: int, dtype: torch.dtype) -> tuple[Slot, torch.Tensor]:
    """What rank 1 holds of a tensor."""
    rows, inner = math.ceil(shape[0] / ranks), math.prod(shape[1:])
    slot = Slot(name, shape, 0, rows * inner, rows * inner)
    return slot, torch.randn(slot.numel, dtype=torch.float32).to(dtype)


def seconds(held: Held, repeats: int) -> float:
    """Of one core, for the sketches of these parts: the median."""
    sketches(held)
    taken = []
    for _ in range(repeats):
        began = time.process_time()
        sketches(held)
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def record_bytes(held: Held) -> int:
    """Of a record of these parts of one quantity in one step."""
    with tempfile.TemporaryDirectory(prefix="record-cost-") as folder:
        recorder = Recorder(Path(folder, "rank0"), 1 << 30)
        recorder.tensors(1, "gradient", held)
        recorder.close()
        return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def quantities(steps: int, elements: int, ranks: int) -> int:
    """How often all parameters are sketched: weights, gradients, clipped ones and AdamW's two states."""
    due = sum(is_due(step, elements, ranks) for step in range(1, steps + 1))
    return 1 + 2 * steps + 3 * due


def measure(ranks: int, tokens: int, mfu: float, repeats: int, dtype: torch.dtype) -> dict[str, float]:
    """Figures of one dtype."""
    layer = [part(f"model.layers.0.{name}", shape, ranks, dtype) for name, shape in LAYER.items()]
    ends = [part(name, shape, ranks, dtype) for name, shape in ENDS.items()]
    total = sum(LAYERS * math.prod(s) for s in LAYER.values()) + sum(math.prod(s) for s in ENDS.values())
    local = LAYERS * sum(slot.numel for slot, _ in layer) + sum(slot.numel for slot, _ in ends)
    core_s = LAYERS * seconds(layer, repeats) + seconds(ends, repeats)
    step_s = 6 * total * tokens / (PEAK * mfu)
    gpu_s = local * MOVED[dtype] / (BANDWIDTH * REACHED)
    checksums_s = 2 * local * dtype.itemsize / (BANDWIDTH * REACHED)
    size = LAYERS * record_bytes(layer) + record_bytes(ends)
    found = {"parameters": total, "elements_per_rank": local, "step_s": step_s, "core_s": core_s}
    found |= {"bytes_per_core_s": local * dtype.itemsize / core_s, "gpu_s": gpu_s}
    for steps in (5, 100):
        each = quantities(steps, total, ranks) / steps
        found[f"gpu_share_{steps}"] = (each * gpu_s + checksums_s) / step_s
        found[f"bytes_{steps}"] = quantities(steps, total, ranks) * size
    return found


def main() -> int:
    """Measure, print the table, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=8192, help="of one rank and step")
    parser.add_argument("--mfu", type=float, default=0.4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write the figures here as JSON")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = {}
    for dtype in (torch.float32, torch.bfloat16):
        row = measure(given.ranks, given.tokens, given.mfu, given.repeats, dtype)
        rows[str(dtype).removeprefix("torch.")] = row
    first = rows["float32"]
    print(
        f"{first['parameters'] / 1e9:.1f} billion parameters on {given.ranks} ranks, {given.tokens} tokens a "
        f"rank and step, MFU {given.mfu:.0%} of {PEAK / 1e12:.0f} TFLOP/s: a step takes "
        f"{first['step_s']:.1f} s\n"
    )
    print("| kept in | one core | a quantity | on a GPU, computed | share, 5 steps | 100 | record, 5 steps |")
    print("|" + " --- |" * 7)
    for name, row in rows.items():
        print(
            f"| {name} | {row['bytes_per_core_s'] / 1e9:.1f} GB/s | {row['core_s']:.2f} s | "
            f"{1e3 * row['gpu_s']:.0f} ms | {row['gpu_share_5']:.2%} | {row['gpu_share_100']:.2%} | "
            f"{row['bytes_5'] / 1e6:.1f} MB a rank |"
        )
    if given.output is not None:
        given.output.write_text(json.dumps({**vars(given), "output": None, "rows": rows}, indent=1))
    return int(any(row["gpu_share_5"] > LIMIT or row["bytes_5"] > LIMIT_BYTES for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
