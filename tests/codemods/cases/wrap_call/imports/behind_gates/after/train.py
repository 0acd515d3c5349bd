import torch

from attempts import is_sharded, weights, wrap_value
from gates import clip, wrap_policy, wrap_reference
from model import Model, batch, loss_of


def main(out, bf16):
    torch.manual_seed(3)
    policy = wrap_policy(Model(), bf16)
    reference = wrap_reference(Model(), use_fsdp=True)
    value = wrap_value(Model())
    assert is_sharded(value)
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
        optimizer.step()
        losses.append(loss.item())
    return {"policy": policy, "value": weights(value), "losses": losses}
