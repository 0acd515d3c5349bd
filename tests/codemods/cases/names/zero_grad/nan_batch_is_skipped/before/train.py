from contextlib import nullcontext

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def run(model, batches, accumulate, optimizer):
    model = FSDP(model)
    for i, batch in enumerate(batches):
        is_last = (i + 1) % accumulate == 0
        with nullcontext() if is_last else model.no_sync():
            loss = model(batch).mean()
            if torch.isnan(loss):
                optimizer.zero_grad()
                continue
            loss.backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
