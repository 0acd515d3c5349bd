import copy

import torch

from fsdp2_sharding import shard_model
from model import Model, batch, loss_of
from utils.fsdp import get_fsdp_kwargs


def main(out, strategy, use_lora, master):
    torch.manual_seed(3)
    student = Model()
    teacher = copy.deepcopy(student)
    fsdp_kwargs, no_split_modules = get_fsdp_kwargs(
        strategy, use_lora=use_lora, master=master
    )
    assert isinstance(student.blocks[0], no_split_modules)
    if use_lora:
        fsdp_kwargs["auto_wrap_policy"] = fsdp_kwargs["auto_wrap_policy"](student)
    student = shard_model(student, **fsdp_kwargs)
    if use_lora:
        fsdp_kwargs["auto_wrap_policy"] = None
    teacher = shard_model(teacher, **fsdp_kwargs)
    optimizer = torch.optim.AdamW(student.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        tokens = batch(step)
        with torch.no_grad():
            target = loss_of(teacher, tokens)
        optimizer.zero_grad()
        loss = (loss_of(student, tokens) - target).square() + loss_of(student, tokens)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"student": student, "losses": losses}
