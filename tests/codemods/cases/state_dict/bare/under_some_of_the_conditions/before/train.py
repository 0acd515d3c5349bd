import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel


def wrapped(model, args):
    if args.train:
        if args.fsdp:
            model = FSDP(model)
        else:
            model = DistributedDataParallel(model)
    return model


def main(model, args):
    model = wrapped(model, args)
    if args.train:
        torch.save(model.state_dict(), "either.pt")
        if args.fsdp:
            torch.save(model.state_dict(), "sharded.pt")
    if args.fsdp and args.train:
        torch.save(model.state_dict(), "also.pt")
