import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, batches, lr, args):
    model = FSDP(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for batch in batches:
        model(batch).mean().backward()
        if args.fsdp:
            model.clip_grad_norm_(1.0)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def clip(model, args):
    if args.fsdp:
        return model.clip_grad_norm_(1.0)
    return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def main(model, batches, args):
    train(model, batches, 0.1, args)
    return clip(FSDP(model), args)
