"""Peers that read what only they write, with sources made for them: DeepSpeed's zero_to_fp32, verl's merger.

Both put together what the ranks of a job hold of a model. `zero_to_fp32` reads ZeRO-3 files, which this tool
refuses; it is compared with the same work on FSDP1's LOCAL files of a model of the same size (the benchmark's
`ranks`). verl's merger and the tool read the same DTensor files. Layouts: DeepSpeed
`utils/zero_to_fp32.py`, verl `model_merger/fsdp_model_merger.py`.
A peer that is not there is left out, and that is said.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

RANKS = 2

MAKE_ZERO = """
import os, sys, torch
from collections import OrderedDict
folder, layers, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
step = os.path.join(folder, "global_step1")
os.makedirs(step)
open(os.path.join(folder, "latest"), "w").write("global_step1")
shapes = OrderedDict()
for i in range(layers):
    shapes[f"{i}.weight"], shapes[f"{i}.bias"] = torch.Size((1024, 1024)), torch.Size((1024,))
count = sum(-(-shape.numel() // ranks) for shape in shapes.values())
for rank in range(ranks):
    model = {"module": {}, "buffer_names": [], "param_shapes": [shapes], "shared_params": {},
             "frozen_param_shapes": None, "frozen_param_fragments": None, "ds_version": "0.15.0"}
    torch.save(model, f"{step}/zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
    state = {"zero_stage": 3, "partition_count": ranks, "fp32_flat_groups": [torch.randn(count)]}
    torch.save({"optimizer_state_dict": state}, f"{step}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
"""

MAKE_VERL = """
import json, os, sys, torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
folder, gib, rank, ranks = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("fsdp",))
width, inner, vocabulary = 1024, 2816, 16384
per_layer = 4 * width * width + 3 * width * inner + 2 * width
layers = max(1, int((gib * 2**30 / 4 - 2 * vocabulary * width) / per_layer))
state = {}
def add(name, *shape):
    whole = torch.empty((shape[0] // ranks, *shape[1:])).normal_()
    state[name] = DTensor.from_local(whole, mesh, [Shard(0)], run_check=False)
add("model.embed_tokens.weight", vocabulary, width)
for i in range(layers):
    p = f"model.layers.{i}."
    for n in "qkvo":
        add(p + f"self_attn.{n}_proj.weight", width, width)
    add(p + "mlp.gate_proj.weight", inner, width)
    add(p + "mlp.up_proj.weight", inner, width)
    add(p + "mlp.down_proj.weight", width, inner)
    add(p + "input_layernorm.weight", width)
    add(p + "post_attention_layernorm.weight", width)
add("model.norm.weight", width)
add("lm_head.weight", vocabulary, width)
torch.save(state, f"{folder}/model_world_size_{ranks}_rank_{rank}.pt")
if rank == 0:
    os.makedirs(f"{folder}/huggingface")
    json.dump({"world_size": ranks}, open(f"{folder}/fsdp_config.json", "w"))
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": width,
              "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": 16,
              "num_key_value_heads": 16, "vocab_size": vocabulary, "tie_word_embeddings": False}
    json.dump(config, open(f"{folder}/huggingface/config.json", "w"))
"""

ZERO = """
import sys
from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict
convert_zero_checkpoint_to_fp32_state_dict(sys.argv[1], sys.argv[2])
"""

VERL = """
import runpy, sys, types
import transformers
checkout = sys.argv.pop(1)
# What verl imports around its merger (ray, tensordict, ...) has no part in the work; nor has a tokenizer.
verl, around = types.ModuleType("verl"), types.ModuleType("verl.utils")
verl.__path__ = [checkout + "/verl"]
around.hf_processor = around.hf_tokenizer = lambda *_, **__: None
sys.modules.update({"verl": verl, "verl.utils": around})
if not hasattr(transformers, "AutoModelForVision2Seq"):  # its name until transformers 5
    transformers.AutoModelForVision2Seq = transformers.AutoModelForImageTextToText
runpy.run_module("verl.model_merger", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Peers:
    """Where peers are.

    Attributes:
        packages: a folder of installed packages that has deepspeed, beside what the program's own Python has.
        verl: a checkout of verl.
    """

    packages: Path | None = None
    verl: Path | None = None

    @property
    def path(self) -> str:
        """For PYTHONPATH."""
        return str(self.packages or "")

    @property
    def has_deepspeed(self) -> bool:
        """Whether it can be imported; the import itself takes seconds, and prints."""
        if self.packages is not None and (self.packages / "deepspeed").is_dir():
            return True
        return importlib.util.find_spec("deepspeed") is not None

    @property
    def has_verl(self) -> bool:
        """Whether there is a checkout with a merger."""
        return self.verl is not None and (self.verl / "verl" / "model_merger").is_dir()

    def make(self, folder: Path, gib: float) -> None:
        """Write the sources, as large as the model in `ranks` of a checkpoint of that size."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        run = [sys.executable, "-W", "ignore", "-c"]
        if self.has_deepspeed:
            layers = max(1, int(gib * 2**30 / 12 / 1024**2))
            made = [*run, MAKE_ZERO, str(folder / "zero"), str(layers), str(RANKS)]
            subprocess.run(made, check=True, env=environment)
        else:
            print("DeepSpeed is not installed (--peers DIR): its zero_to_fp32 is left out")
        if self.has_verl:
            (folder / "verl").mkdir()
            for rank in range(RANKS):
                made = [*run, MAKE_VERL, str(folder / "verl"), str(gib / 3), str(rank), str(RANKS)]
                subprocess.run(made, check=True, env=environment)
        else:
            print("no checkout of verl (--verl DIR): its merger is left out")

    def commands(self, folder: Path, target: str) -> dict[str, tuple[list[str], str]]:
        """Command lines by name, each with what it reads below the folder."""
        run = [sys.executable, "-W", "ignore", "-c"]
        found = {}
        if self.has_deepspeed:
            found["DeepSpeed zero_to_fp32"] = ([*run, ZERO, str(folder / "zero"), target], "zero")
        if self.has_verl:
            options = ["merge", "--backend", "fsdp", "--local_dir", str(folder / "verl")]
            command = [*run, VERL, str(self.verl), *options, "--target_dir", target]
            found["verl model_merger"] = (command, "verl")
        return found
