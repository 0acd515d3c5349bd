import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def count(model, block):
    model = FSDP(model)
    found = [m for m in model.modules() if type(m) is block]
    for name, module in model.named_modules():
        if module.__class__.__name__ == "Linear":
            print(name)
        if type(name) is str:
            continue
    return len(found)


def count_plain(net):
    return sum(type(m) is torch.nn.Linear for m in net.modules())
