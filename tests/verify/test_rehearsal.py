"""What a rehearsal on a CPU answers to scripts that ask for a GPU: calls without an argument, and habits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from fsdp_migrate.verify.failures import asked_for_gpu

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
import concurrent.futures, inspect, io, json, threading, torch
from torch import nn
from fsdp_migrate.verify import cuda_calls, fsdp2_on_cpu, rehearsal

said = set()
mode = rehearsal.OnCpu(said.add)
rehearsal.apply(mode)
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
def in_a_thread(call):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()

class Loader(threading.Thread):
    def run(self):
        self.batch = ones.to("cuda:0")

def a_loader():
    loader = Loader()
    loader.start()
    loader.join()
    return loader.batch

def a_device():
    with torch.cuda.device(1), torch.cuda.nvtx.range("step"), torch.device("cuda"):
        return torch.zeros(2)

def by_default():
    torch.set_default_device("cuda")
    try:
        return torch.zeros(2)
    finally:
        torch.set_default_device(None)

def read(*place):
    saved.seek(0)
    return torch.load(saved, *place)

def compiled():
    layer = torch.compile(nn.LayerNorm(2), backend=lambda *_: 1 / 0)
    return layer(ones) * dict(layer.named_parameters())["_orig_mod.weight"]

saved = io.BytesIO()
torch.save(ones, saved)
HABITS = {
    "a slice": lambda: ones.repeat(2, 2)[:, 1:].to("cuda").view(6),
    "a slice by cuda()": lambda: ones.repeat(2, 2)[:, 1:].cuda().view(6),
    "a number": lambda: nn.LayerNorm(2).to(torch.device(0))(ones.to(0)).to(torch.device(device=1)),
    "a number's kind": lambda: str(torch.device(1)) == "cuda:1" or 1 / 0,
    "compiled": compiled,
    "pin_memory": lambda: ones.pin_memory().to("cuda", non_blocking=True),
    "made pinned": lambda: torch.empty(2, pin_memory=True),
    "record_stream": lambda: ones.record_stream(torch.cuda.current_stream()),
    "a pool": lambda: in_a_thread(lambda: ones.to("cuda:1")),
    "a thread": a_loader,
    "device": a_device,
    "default device": by_default,
    "default type": lambda: torch.set_default_tensor_type("torch.cuda.FloatTensor"),
    "tensor type": lambda: torch.cuda.FloatTensor([1.0]),
    "type": lambda: ones.type("torch.cuda.FloatTensor"),
    "generator": lambda: torch.randn(2, device="cuda", generator=torch.Generator("cuda").manual_seed(1)),
    "generators": lambda: isinstance(torch.default_generator, torch.Generator) or 1 / 0,
    "load": read,
    "load to": lambda: read("cuda:0"),
    "load to device": lambda: read(torch.device("cuda", 1)),
    "load by map": lambda: read({"cpu": "cuda:1"}),
    "load by call": lambda: read(lambda storage, place: storage.cuda(1)),
    "fraction": lambda: torch.cuda.set_per_process_memory_fraction(0.9),
    "history": lambda: torch.cuda.memory._record_memory_history(max_entries=10),
    "nccl": lambda: torch.cuda.nccl.version() >= (2, 10) or 1 / 0,
}
if hasattr(torch, "accelerator"):
    HABITS["accelerator"] = torch.accelerator.synchronize
    HABITS["its index"] = torch.accelerator.current_device_index
habits = []
with mode:
    for name, habit in HABITS.items():
        try:
            made = habit()
        except Exception as error:
            habits.append(f"{name}: {error}")
        else:
            if isinstance(made, torch.Tensor) and made.device.type != "cpu":
                habits.append(name)
available = torch.cuda.is_available()
def is_torch_bf16_gpu_available():
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
bf16 = is_torch_bf16_gpu_available()
torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
ddp = nn.parallel.DistributedDataParallel(nn.LayerNorm(2), [0], output_device=0)(ones).sum().item()
def normalized(kind, momentum):
    drawn = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(1))
    layer, batch = kind(3, momentum=momentum), (3 * drawn + 5).requires_grad_()
    layer.weight.data = torch.tensor([1.0, -2.0, 0.5])
    for _ in range(2):
        layer(batch).pow(3).sum().backward()
    return [batch.grad, layer.weight.grad, layer.bias.grad, *layer.buffers(), layer.eval()(batch)]
statistics = [
    torch.allclose(sync.float(), plain.float(), rtol=1e-4, atol=1e-4)
    for momentum in (0.1, None)
    for sync, plain in zip(normalized(nn.SyncBatchNorm, momentum), normalized(nn.BatchNorm1d, momentum))
]
fsdp2_on_cpu.apply(said.add)
sharded = torch.distributed.fsdp.fully_shard(nn.LayerNorm(2))
sharded.set_gradient_divide_factor(4.0)
sharded(ones * torch.tensor([1.0, 3.0])).sum().backward()
divided = sharded.bias.grad.full_tensor().tolist()
torch.distributed.destroy_process_group()
cuda_calls.apply(said.add, as_gpu=True)
print(json.dumps({
    "failed": failed,
    "habits": habits,
    "forked": torch.equal(before, torch.random.get_rng_state()),
    "sum": ones.sum().item(),
    "devices": torch.cuda.device_count(),
    "free": torch.cuda.mem_get_info(),
    "total": torch.cuda.get_device_properties(0).total_memory,
    "allocated": torch.cuda.memory_stats()["allocated_bytes.all.peak"],
    "capability": torch.cuda.get_device_capability(0),
    "bf16": bf16,
    "ddp": ddp,
    "statistics": statistics,
    "divided": divided,
    "available": [available, torch.cuda.is_available(), torch.amp.GradScaler().is_enabled()],
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
    assert told["habits"] == []
    assert any("torch.compile compiles nothing" in text for text in told["said"])
    assert told["bf16"] and told["ddp"] == 0.0
    assert told["statistics"] == [True] * 14
    assert told["divided"] == [0.25, 0.25]
    assert told["forked"] and told["sum"] == 2.0
    assert told["devices"] == 2 and told["allocated"] == 0
    # Scripts print what share of the memory is in use.
    assert told["free"] == [told["total"], told["total"]] and told["total"] / 2**30 == 80.0
    assert told["capability"] == [8, 0] and told["available"] == [False, True, True]
    assert asked_for_gpu(told["said"]) and not asked_for_gpu(["torch.cuda.is_available() answers True"])
    assert "torch.cuda.memory_stats() answers zeros" in told["said"]
    assert "torch.cuda.synchronize() does nothing" in told["said"]
