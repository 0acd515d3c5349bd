"""The checkpoints that `convert.py` converts: one full file, an FSDP1 job's rank files, DCP directories."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from convert_peers import Peers

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


def make_sources(folder: Path, gib: float, peers: Peers) -> None:
    """Everything that is read."""
    full = folder / "full.pt"
    make = [sys.executable, "-c", MAKE]
    subprocess.run([*make, str(full), str(gib), "1024"], check=True)
    subprocess.run([*make, str(folder / "small.pt"), "0.01", "128"], check=True)
    (folder / "ranks").mkdir()
    program = folder / "train.py"
    program.write_text(TRAIN)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(program)]
    subprocess.run([*launch, str(folder / "ranks"), str(gib)], check=True, env=ENVIRONMENT)
    convert = [sys.executable, "-m", "fsdp_migrate", "-q", "convert-ckpt", str(full)]
    for name, preset in (("dcp", "torch"), ("accelerate", "accelerate")):
        command = [*convert, str(folder / name), "--layout", preset]
        subprocess.run(command, check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    peers.make(folder, gib)
    print(f"source: {full.stat().st_size / 2**30:.2f} GiB, {os.cpu_count()} cores", flush=True)
