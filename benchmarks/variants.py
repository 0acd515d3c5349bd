"""Step time of the reference decoder under FSDP2 on one device: plain, compiled per layer, and in float8.

python benchmarks/variants.py [--dry-run] [--output FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from fsdp_migrate.verify.reference_job.config import SHAPES
from fsdp_migrate.verify.reference_job.model import Decoder, DecoderLayer

WARM_UP, COUNTED = 3, 8


def plain(model: nn.Module) -> None:
    """As it is."""


def compiled(model: nn.Module) -> None:
    """Each layer compiled in place, before it is sharded."""
    for layer in model.modules():
        if isinstance(layer, DecoderLayer):
            layer.compile(backend="inductor" if torch.cuda.is_available() else "eager")


def in_float8(model: nn.Module) -> None:
    """Linear layers in float8, by torchao.

    Raises:
        ImportError: torchao is not installed.
    """
    from torchao.float8 import convert_to_float8_training

    convert_to_float8_training(model, module_filter_fn=lambda module, name: "head" not in name)


def timed(change: Callable[[nn.Module], None], *, dry: bool) -> list[float]:
    """Seconds of every counted step."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shape = SHAPES["tiny" if dry else "medium"]
    length, batch = (32, 1) if dry else (2048, 4)
    torch.manual_seed(0)
    with device:
        model = Decoder(shape, length=length, tied=False)
    change(model)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    for layer in model.modules():
        if isinstance(layer, DecoderLayer):
            fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(shape.vocab, (batch, length + 1), device=device)
    marks = []
    for _ in range(2 if dry else WARM_UP + COUNTED + 1):
        logits = model(tokens[:, :-1])
        F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()
        marks.append(time.perf_counter())
    times = [after - before for before, after in itertools.pairwise(marks)]
    return times if dry else times[WARM_UP:]


def main() -> int:
    """Time every variant; one that cannot run says why."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    store = dist.HashStore()
    dist.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo", store=store, rank=0, world_size=1
    )
    found: list[dict[str, object]] = []

    def write() -> str:
        """After each variant, so that one that takes too long costs no other."""
        text = json.dumps({"device": device_name(), "variants": found}, indent=2)
        if options.output is not None:
            options.output.write_text(text + "\n")
        return text

    for name, change in (("plain", plain), ("float8", in_float8), ("compiled", compiled)):
        try:
            times = timed(change, dry=options.dry_run)
        except Exception as error:  # float8 needs torchao and a chip that has it
            found.append({"name": name, "seconds": None, "words": f"does not run here: {error}"[:300]})
            write()
            continue
        median = statistics.median(times)
        found.append({"name": name, "seconds": median, "words": f"step {median * 1e3:.1f} ms"})
        write()
    print(write(), flush=True)
    os._exit(0)  # gloo's threads abort an orderly exit now and then


def device_name() -> str:
    """The GPU's name, or cpu."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    sys.exit(main())
