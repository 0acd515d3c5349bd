import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import enable_wrap, wrap

from model import Model, batch, loss_of


def main(out):
    model = Model()
    settings = {
        "mixed_precision": MixedPrecision(param_dtype=torch.bfloat16),
        "device_id": torch.device("cpu"),
        "use_orig_params": True,
    }
    with enable_wrap(wrapper_cls=FSDP, **settings):
        for i, block in enumerate(model.blocks):
            # each block on its own
            model.blocks[i] = wrap(block)

        # and the rest
        model = wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
