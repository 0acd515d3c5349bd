from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from optimizers import build, of_model


def main(net, name):
    model = FSDP(net, use_orig_params=True)
    return of_model(name, model)


def too_early(net, name):
    first = build(name, net.parameters(), 0.1)
    model = FSDP(net, use_orig_params=True)
    return model, first
