import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def count(model):
    # TODO(fsdp-migrate FM515): drop the factor for the number of ranks, or the sum over
    #   them
    return sum(p.numel() for p in model.parameters())


def trainable(model):
    return sum(map(lambda p: p.numel(), model.parameters()))


def multiplied(model, world_size):
    # TODO(fsdp-migrate FM515): drop the factor for the number of ranks, or the sum over
    #   them
    return sum([p.numel() for p in model.parameters()]) * world_size / 1e6


def multiplied_later(model):
    total = 0
    for parameter in model.parameters():
        # TODO(fsdp-migrate FM515): drop the factor for the number of ranks, or the sum
        #   over them
        total += parameter.numel()
    return total * dist.get_world_size()


def summed(model):
    # TODO(fsdp-migrate FM515): drop the factor for the number of ranks, or the sum over
    #   them
    number = sum(p.numel() for p in model.parameters())
    total = torch.tensor(number)
    dist.all_reduce(total)
    return total.item()


def by_caller(model):
    return count(model) * dist.get_world_size()


def main(model):
    before = count_before(model)
    fully_shard(model)
    print(before, trainable(model), multiplied(model, 8), multiplied_later(model))
    return summed(model), by_caller(model)


def count_before(model):
    return sum(p.numel() for p in model.parameters())
