import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Model, batch, loss_of


def build():
    model = FSDP(Model(), device_id=torch.device("cpu"), use_orig_params=True)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model, optimizer, first):
    losses = []
    for step in range(first, first + 2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def save(model, optim, path):
    FSDP.set_state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(rank0_only=True),
        FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=True),
    )
    state_dict = model.state_dict()
    original_osd = optim.state_dict()
    optim_state_dict = FSDP.optim_state_dict(
        model, optim, optim_state_dict=original_osd
    )
    if dist.get_rank() == 0:
        torch.save({"model": state_dict, "optim": optim_state_dict}, path)
    dist.barrier()


def load(model, optim, path):
    FSDP.set_state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(rank0_only=False),
        FullOptimStateDictConfig(rank0_only=False),
    )
    saved = torch.load(path, weights_only=False)
    model.load_state_dict(saved["model"])
    optim_state_dict = FSDP.optim_state_dict_to_load(model, optim, saved["optim"])
    optim.load_state_dict(optim_state_dict)


def main(out):
    model, optimizer = build()
    losses = train(model, optimizer, 0)
    save(model, optimizer, out / "checkpoint.pt")
    model, optimizer = build()
    load(model, optimizer, out / "checkpoint.pt")
    return {"model": model, "losses": losses + train(model, optimizer, 2)}
