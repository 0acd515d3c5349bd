"""What a rehearsal on a CPU answers to scripts that ask `torch.cuda`: every call that needs no argument."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What cannot be given without a GPU, and is no business of a training script that could run on a CPU.
NOT_ANSWERED = {
    *(f"{kind}Storage" for kind in ("BFloat16", "Bool", "Byte", "Char", "ComplexDouble", "ComplexFloat")),
    *(f"{kind}Storage" for kind in ("Double", "Float", "Half", "Int", "Long", "Short")),
    "CUDAGraph",
    "GreenContext",  # torch 2.14
    "MemPool",
    "cudart",
    "current_blas_handle",
    "current_solver_handle",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "get_sync_debug_mode",
    "graph_pool_handle",
}
PROGRAM = """
import inspect, json, torch
from fsdp_migrate.verify import rehearsal

said = set()
rehearsal.apply(rehearsal.OnCpu(said.add))
failed = []
for name in torch.cuda.__all__:
    call = getattr(torch.cuda, name, None)
    try:
        needed = [p for p in inspect.signature(call).parameters.values()
                  if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    except (TypeError, ValueError):
        continue
    if not needed:
        try:
            call()
        except Exception as error:
            failed.append(name)
before = torch.random.get_rng_state()
with torch.random.fork_rng():
    torch.rand(3)
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    ones = torch.ones(2)
print(json.dumps({
    "failed": failed,
    "forked": torch.equal(before, torch.random.get_rng_state()),
    "sum": ones.sum().item(),
    "devices": torch.cuda.device_count(),
    "allocated": torch.cuda.memory_stats()["allocated_bytes.all.peak"],
    "capability": torch.cuda.get_device_capability(0),
    "available": torch.cuda.is_available(),
    "said": sorted(said),
}))
"""


def test_scripts_that_ask_cuda_get_an_answer_on_a_cpu() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(ROOT), "LOCAL_WORLD_SIZE": "2"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    told = json.loads(done.stdout)
    assert set(told["failed"]) <= NOT_ANSWERED
    assert told["forked"] and told["sum"] == 2.0
    assert told["devices"] == 2 and told["allocated"] == 0
    assert told["capability"] == [8, 0] and told["available"] is False
    assert "torch.cuda.memory_stats() answers zeros" in told["said"]
    assert "torch.cuda.synchronize() does nothing" in told["said"]
