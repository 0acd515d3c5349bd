import torch
from torch.distributed.fsdp import fully_shard


def train(model, batches, lr):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for batch in batches:
        model(batch).mean().backward()
        total = torch.nn.utils.clip_grad_norm_(
            model.parameters(), 1.0, norm_type=2.0
        ).full_tensor()  # the usual threshold
        print("norm %.3f" % total)
        optimizer.step()
        optimizer.zero_grad()
