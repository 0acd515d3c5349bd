from torch.distributed.fsdp import fully_shard

from optimizers import build, of_model


def main(net, name):
    model = fully_shard(net)
    return of_model(name, model)


def too_early(net, name):
    model = fully_shard(net)
    first = build(name, net.parameters(), 0.1)
    return model, first
