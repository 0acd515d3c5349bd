from dataclasses import dataclass

import torch
from torch import nn

from fsdp2_sharding import MixedPrecision, shard_model


@dataclass
class Precision:
    dtype: str = "bfloat16"
    keep_low_precision_grads: bool = False

    def of_torch(self):
        return MixedPrecision(
            param_dtype=getattr(torch, self.dtype),
            keep_low_precision_grads=self.keep_low_precision_grads,
        )


def spread(keeps):
    settings = dict(param_dtype=torch.bfloat16, keep_low_precision_grads=keeps)
    return MixedPrecision(**settings)


def main(out, keeps):
    torch.manual_seed(0)
    told = Precision(keep_low_precision_grads=keeps).of_torch()
    assert spread(keeps).param_dtype is told.param_dtype
    model = shard_model(
        nn.Linear(8, 8),
        mixed_precision=told,
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        loss = model(torch.ones(2, 8)).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"losses": losses, "model": model}
