import functools

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import ModuleWrapPolicy, summon_full_params
from model import Block, Model, batch, loss_of

non_reentrant_wrapper = functools.partial(
    checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT
)


def check_fn(submodule):
    return isinstance(submodule, Block)


def apply_fsdp_checkpointing(model):
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=non_reentrant_wrapper, check_fn=check_fn
    )


def shard(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def after(model):
    model = shard(model)
    apply_fsdp_checkpointing(model)
    return model


def before(model):
    apply_fsdp_checkpointing(model)
    return shard(model)


def between(model):
    model = shard(model)
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=checkpoint_wrapper,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
    )
    reference = shard(Model())
    with torch.no_grad():
        loss_of(reference, batch(1))
    return model


def selective(model, every=2):
    model = shard(model)
    seen = 0

    def every_other(submodule):
        nonlocal seen
        if isinstance(submodule, Block):
            seen += 1
            return seen % every == 0
        return False

    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=every_other
    )
    return model


def one_by_one(model):
    for place, block in enumerate(model.blocks):
        model.blocks[place] = checkpoint_wrapper(block)
    return shard(model)


def main(out):
    results = {}
    for form in (after, before, between, selective, one_by_one):
        torch.manual_seed(3)
        model = form(Model())
        loss = loss_of(model, batch(0))
        loss.backward()
        with summon_full_params(model, with_grads=True):
            names = {n.replace("_fsdp_wrapped_module.", "") for n in model.state_dict()}
        results[form.__name__] = [loss.item(), model, sorted(names)]
    return results
