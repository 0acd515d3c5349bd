"""The zoo's job under FSDP1."""

import functools

import loop
import torch
import torch.distributed as dist
from model import Block, Inner, Model, options
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class Fsdp1:
    def __init__(self, choice):
        self.choice = choice

    def shard(self, model):
        choice = self.choice
        precision = None
        if choice.dtype != "fp32" or choice.buffers_bf16:
            precision = MixedPrecision(
                param_dtype=None if choice.dtype == "fp32" else loop.DTYPES[choice.dtype],
                reduce_dtype=None if choice.dtype == "fp32" else loop.DTYPES[choice.reduce],
                buffer_dtype=torch.bfloat16 if choice.buffers_bf16 else None,
            )
            if choice.norm_unit:
                precision._module_classes_to_ignore = [nn.LayerNorm]
        mesh = {}
        if "HYBRID" in choice.strategy:
            from torch.distributed.device_mesh import init_device_mesh  # torch 2.2 and later

            shape = (2, dist.get_world_size() // 2)
            mesh = {"device_mesh": init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))}
        if choice.compile:
            for block in model.blocks:
                block.compile(backend="eager")
        wrapped = FSDP(
            model,
            auto_wrap_policy=functools.partial(
                transformer_auto_wrap_policy, transformer_layer_cls={Block, Inner}
            ),
            sharding_strategy=ShardingStrategy[choice.strategy],
            mixed_precision=precision,
            cpu_offload=CPUOffload(offload_params=True) if choice.offload else None,
            ignored_states=[model.side] if choice.ignored else None,
            device_id=torch.device("cpu"),
            sync_module_states=choice.sync,
            use_orig_params=not choice.flat,
            **mesh,
        )
        if choice.checkpointing:
            apply_activation_checkpointing(wrapped, check_fn=lambda m: isinstance(m, Block))
        return wrapped

    def accumulating(self, model, is_last):
        return loop.nothing() if is_last else model.no_sync()

    def clip(self, model, optimizer):
        return model.clip_grad_norm_(self.choice.clip, self.choice.norm_type)

    def write(self, model):
        with FSDP.summon_full_params(model, writeback=True):
            for parameter in model.parameters():
                parameter.data.mul_(0.9)

    def full_state(self, model, optimizer):
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            state = {"model": model.state_dict()}
            if optimizer is not None:
                state["optimizer"] = FSDP.optim_state_dict(model, optimizer)
        return state

    def load(self, model, optimizer, kept):
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, kept["optimizer"]))

    def norm_of_gradients(self, model):
        total = sum(p.grad.double().norm() ** 2 for p in model.parameters() if p.grad is not None)
        dist.all_reduce(total)
        return float(total) ** 0.5

    def count(self, model):
        number = torch.tensor(sum(p.numel() for p in model.parameters()))
        dist.all_reduce(number)
        return int(number)


def main() -> None:
    choice = options()
    loop.train(Fsdp1(choice), Model, choice)


if __name__ == "__main__":
    main()
