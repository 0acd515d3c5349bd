import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block, Model, batch, loss_of


def main(out, whole):
    model = Model()
    if not whole:
        for block in model.blocks:
            block.compile(backend="eager")
    model = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    if whole:
        model = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        norm = model.clip_grad_norm_(float("inf"))
        optimizer.step()
        losses.append(loss.item())
    state = model.state_dict()
    names = sorted(name.replace("_orig_mod.", "") for name in state)
    assert norm > 0
    return {
        "losses": losses,
        "names": names,
        "values": [state[name].sum() for name in sorted(state)],
        "wrapped": isinstance(model, FSDP),
    }
