import itertools
import os
import signal
import sys
import time
from dataclasses import replace

import torch
import torch.distributed as dist
from model import Block, Model, loss_of, optimizer_for, options
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def shard(model, choice):
    policy = MixedPrecisionPolicy()
    if choice.dtype == "bf16":
        reduce_dtype = torch.bfloat16 if choice.mistake == "reduce-dtype" else DTYPES[choice.reduce]
        policy = MixedPrecisionPolicy(
            torch.bfloat16, reduce_dtype, cast_forward_inputs=choice.mistake == "casts"
        )
    if choice.mistake == "param-dtype":
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    shape, names = (dist.get_world_size(),), ("shard",)
    if choice.strategy == "HYBRID_SHARD":
        per_node = torch.cuda.device_count()
        shape, names = (dist.get_world_size() // per_node, per_node), ("replicate", "shard")
    if choice.strategy == "NO_SHARD":
        shape, names = (dist.get_world_size(), 1), ("replicate", "shard")
    settings = {"mesh": init_device_mesh("cuda", shape, mesh_dim_names=names)}
    if choice.strategy == "SHARD_GRAD_OP":
        settings["reshard_after_forward"] = False
    if choice.mistake != "root-only":
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module, mp_policy=policy, **settings)
    fully_shard(model, mp_policy=replace(policy, cast_forward_inputs=True), **settings)


def clip(model, choice):
    if choice.mistake == "no-clip":
        return
    if choice.mistake == "local-norm":
        grads = [p.grad.to_local() for p in model.parameters()]
        norm = torch.stack([g.norm() for g in grads]).norm()
        for g in grads:
            g.mul_(min(1.0, choice.clip / (float(norm) + 1e-6)))
    elif choice.mistake == "local-norm-call":
        local = [torch.nn.Parameter(p.to_local()) for p in model.parameters()]
        for own, p in zip(local, model.parameters(), strict=True):
            own.grad = p.grad.to_local()
        torch.nn.utils.clip_grad_norm_(local, choice.clip)
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), choice.clip)


def resume(model, optimizer, path):
    kept = torch.load(path, map_location="cpu", weights_only=False)
    full = StateDictOptions(full_state_dict=True)
    set_model_state_dict(model, kept["model"], options=full)
    set_optimizer_state_dict(model, optimizer, kept["optimizer"], options=full)


def misbehave(mistake, step):
    if step == 1 and dist.get_rank() == 1:
        if mistake == "crash":
            raise ValueError("bad batch")
        while mistake == "hang":
            time.sleep(0.1)
        if mistake == "leave":
            sys.exit(1)
        if mistake == "killed":
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    choice = options()
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.manual_seed(rank if choice.seed_by_rank else 0)
    model = Model(choice).cuda()
    if choice.sync and choice.mistake != "no-broadcast":
        for tensor in itertools.chain(model.parameters(), model.buffers()):
            dist.broadcast(tensor.detach(), src=0)
    if choice.mistake == "seed":
        with torch.no_grad():
            model.head.weight.normal_()
    if choice.mistake == "double":
        model.double()
    early = optimizer_for(list(model.parameters()), choice)
    shard(model, choice)
    if choice.unused and choice.mistake != "unused":
        model.set_reduce_scatter_unused_params(True)
    optimizer = early
    if choice.mistake == "optimizer-late":
        with torch.no_grad():
            model(torch.zeros(1, 8, dtype=torch.long).cuda())
    if choice.mistake != "optimizer-first":
        optimizer = optimizer_for(list(model.parameters()), choice)
    if choice.groups and choice.mistake != "groups":
        # FSDP1's parameters are 1-D after the wrap, so that none of them was decayed.
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    if choice.mistake == "lr":
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.5)
    if choice.resume:
        resume(model, optimizer, choice.resume)
    data = torch.Generator().manual_seed(rank + (choice.mistake == "data"))
    cached = choice.mistake == "autocast"
    torch.autocast("cuda", torch.bfloat16, enabled=choice.autocast, cache_enabled=cached).__enter__()
    for step in range(choice.steps):
        misbehave(choice.mistake, step)
        for micro in range(choice.accumulate):
            if choice.mistake != "sync-always":
                model.set_requires_gradient_sync(micro + 1 == choice.accumulate)
            tokens = torch.randint(0, 50, (4, 8), generator=data)
            loss = loss_of(model, tokens.cuda())
            if choice.mistake == "scale":
                loss = loss * dist.get_world_size()
            loss.backward()
            if choice.drop_first and micro == 0 and step == 1:
                optimizer.zero_grad()
        if choice.clip:
            clip(model, choice)
        if choice.mistake != "never":
            optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
