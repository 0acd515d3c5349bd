import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from model import Block, Model, batch, loss_of


def main(out, whole):
    model = Model()
    if not whole:
        for block in model.blocks:
            block.compile(backend="eager")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if whole:
        model = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(
            model.parameters(), float("inf")
        ).full_tensor()
        optimizer.step()
        losses.append(loss.item())
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    names = sorted(name.replace("_orig_mod.", "") for name in state)
    assert norm > 0
    return {
        "losses": losses,
        "names": names,
        "values": [state[name].sum() for name in sorted(state)],
        "wrapped": isinstance(model, FSDPModule),
    }
