import torch

from model import Block, Model, batch, loss_of
from wrap import clip, wrap_policy, wrap_reference, wrap_value


def main(out):
    torch.manual_seed(3)
    policy = wrap_policy(Model(), [Block])
    reference = wrap_reference(Model(), "FULL_SHARD")
    value = wrap_value(Model())
    optimizer = torch.optim.SGD([*policy.parameters(), *value.parameters()], lr=0.1)
    losses = []
    for step in range(2):
        tokens = batch(step)
        with torch.no_grad():
            margin = loss_of(reference, tokens)
        optimizer.zero_grad()
        loss = (loss_of(policy, tokens) - margin).exp() + loss_of(value, tokens)
        loss.backward()
        clip(policy, 10.0)
        clip(value, 10.0)
        optimizer.step()
        losses.append(loss.item())
    return {"policy": policy, "value": value, "losses": losses}
