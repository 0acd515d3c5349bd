import torch
from torch.distributed.fsdp import fully_shard


def count(model, block):
    fully_shard(model)
    # TODO(fsdp-migrate FM508): test with `isinstance`
    found = [m for m in model.modules() if type(m) is block]
    for name, module in model.named_modules():
        if module.__class__.__name__.removeprefix("FSDP") == "Linear":
            print(name)
        if type(name) is str:
            continue
    return len(found)


def count_plain(net):
    return sum(type(m) is torch.nn.Linear for m in net.modules())
