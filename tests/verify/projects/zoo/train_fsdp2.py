"""The zoo's job under FSDP2, right by default; `--mistake NAME` plants one of `mistakes.py`."""

import itertools
import re
from dataclasses import replace

import loop
import mistakes
import torch
import torch.distributed as dist
from model import Block, Inner, Model, optimizer_for, options
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard


class Fsdp2:
    units = (Inner, Block)

    def __init__(self, choice):
        self.choice = choice

    def broadcast(self, model):
        for tensor in itertools.chain(model.parameters(), model.buffers()):
            dist.broadcast(tensor.detach(), src=0)

    def mesh(self):
        world, strategy = dist.get_world_size(), self.choice.strategy
        names = ("replicate", "shard")
        if "HYBRID" in strategy:
            return init_device_mesh("cpu", (2, world // 2), mesh_dim_names=names)
        if strategy == "NO_SHARD":
            return init_device_mesh("cpu", (world, 1), mesh_dim_names=names)
        return init_device_mesh("cpu", (world,), mesh_dim_names=("shard",))

    def settings(self, model):
        choice = self.choice
        found = {"mesh": self.mesh()}
        if choice.strategy in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"):
            found["reshard_after_forward"] = False
        if choice.offload:
            found["offload_policy"] = CPUOffloadPolicy()
        if choice.ignored:
            found["ignored_params"] = set(model.side.parameters())
        return found

    def policy(self):
        choice = self.choice
        if choice.dtype == "fp32":
            return MixedPrecisionPolicy(cast_forward_inputs=False)
        return MixedPrecisionPolicy(
            loop.DTYPES[choice.dtype], loop.DTYPES[choice.reduce], cast_forward_inputs=False
        )

    def root_policy(self):
        return replace(self.policy(), cast_forward_inputs=True)

    def norm_policy(self):
        return MixedPrecisionPolicy(torch.float32, torch.float32, output_dtype=loop.DTYPES[self.choice.dtype])

    def units_of(self, model):
        found = [m for m in reversed(list(model.modules())) if isinstance(m, self.units)]
        if self.choice.norm_unit:
            found = [m for m in model.modules() if isinstance(m, nn.LayerNorm)] + found
        return found

    def prepare(self, model):
        if self.choice.sync:
            self.broadcast(model)
        if self.choice.checkpointing:
            apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))
        if self.choice.compile:
            for block in model.blocks:
                block.compile(backend="eager")

    def shard(self, model):
        self.prepare(model)
        settings = self.settings(model)
        for module in self.units_of(model):
            norm = isinstance(module, nn.LayerNorm)
            fully_shard(module, mp_policy=self.norm_policy() if norm else self.policy(), **settings)
        self.root(model, settings)
        if self.choice.unused:
            model.set_reduce_scatter_unused_params(True)
        self.buffers(model)
        return model

    def root(self, model, settings):
        fully_shard(model, mp_policy=self.root_policy(), **settings)

    def buffers(self, model):
        if self.choice.buffers_bf16:
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    buffer.data = buffer.data.to(torch.bfloat16)

    def optimizer(self, model, early):
        if self.choice.groups:  # FSDP1's parameters are 1-D after the wrap: none of them was decayed
            return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
        if self.choice.ignored:
            plain = list(model.side.parameters())
            rest = [p for p in model.parameters() if all(p is not each for each in plain)]
            return optimizer_for([{"params": rest}, {"params": plain}], self.choice)
        return None

    def accumulating(self, model, is_last):
        model.set_requires_gradient_sync(is_last)
        if self.choice.strategy == "SHARD_GRAD_OP":
            model.set_reshard_after_backward(is_last)
        return loop.nothing()

    def clip(self, model, optimizer):
        norm = nn.utils.clip_grad_norm_(model.parameters(), self.choice.clip, self.choice.norm_type)
        return norm.full_tensor()

    def write(self, model):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.9)

    def full_state(self, model, optimizer):
        full = StateDictOptions(full_state_dict=True)
        state = {"model": get_model_state_dict(model, options=full)}
        if optimizer is not None:
            state["optimizer"] = get_optimizer_state_dict(model, optimizer, options=full)
        return state

    def load(self, model, optimizer, kept):
        full = StateDictOptions(full_state_dict=True)
        set_model_state_dict(model, kept["model"], options=full)
        set_optimizer_state_dict(model, optimizer, kept["optimizer"], options=full)

    def norm_of_gradients(self, model):
        total = sum(
            p.grad.double().norm().full_tensor() ** 2 for p in model.parameters() if p.grad is not None
        )
        return float(total) ** 0.5

    def count(self, model):
        return sum(p.numel() for p in model.parameters())


def main() -> None:
    choice = options()
    kind = Fsdp2
    if choice.mistake:
        name = "".join(part.capitalize() for part in re.split("[-_]", choice.mistake))
        kind = mistakes.planted(getattr(mistakes, name), Fsdp2)
    loop.train(kind(choice), Model, choice)


if __name__ == "__main__":
    main()
