import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Model, batch, loss_of
from policies import get_policy


def main(out, policy):
    model = Model()
    model = FSDP(
        model,
        auto_wrap_policy=get_policy(policy),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
