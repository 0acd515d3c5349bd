import torch
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import shard_model


def train(model, batches, lr, args):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for batch in batches:
        model(batch).mean().backward()
        if args.fsdp:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def clip(model, args):
    if args.fsdp:
        return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
    return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def main(model, batches, args):
    train(model, batches, 0.1, args)
    return clip(shard_model(model), args)
