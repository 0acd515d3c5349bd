import torch
from torch.nn import functional as F

from model import Model, batch, build
from strategy import Strategy


def main(out, name, dtype, sharding="FULL_SHARD"):
    strategy = Strategy(dtype, sharding)
    if name == "by hand":
        with strategy.init_context():
            parts = build(16, 2)
        model = strategy.setup(Model(parts))
    elif name == "around":
        with strategy.init_context():
            parts = build(16, 2)
        model = strategy.whole(Model(parts))
    else:
        model = strategy.setup(Model(build(16, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        tokens, scale = batch(step)
        logits = model(tokens[:, :-1], scale)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses}
