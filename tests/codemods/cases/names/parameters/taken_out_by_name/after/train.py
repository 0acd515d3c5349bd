import torch
from torch.distributed.fsdp import fully_shard


class Groups:
    def __init__(self, model):
        self.model = fully_shard(model)
        self.params = dict(self.model.named_parameters())
        self.sizes = {name: 1 for name in self.params}

    def decayed(self):
        # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match:
        #   it matched by flattened shapes before
        decay = {n for n in self.params if self.params[n].ndim >= 2}
        return [self.params[n] for n in sorted(decay)]

    def told(self):
        for n in self.params:
            print(f"{n}: {self.params[n].shape}", self.sizes[n].dim())


def optimizer(model):
    fully_shard(model)
    params = {n: p for n, p in model.named_parameters() if p.requires_grad}
    names = [n for n, _ in model.named_parameters()]
    groups = [[], []]
    for n in sorted(params):
        p = params[n]
        # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match:
        #   it matched by flattened shapes before
        groups[p.dim() >= 2].append(p)
    # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match: it
    #   saw other names before
    first = [params[n] for n in names if n.startswith("blocks.")]
    return torch.optim.AdamW([{"params": one} for one in (*groups, first)])


def plain(model, shapes):
    params = dict(model.named_parameters())
    return [params[n] for n in params if params[n].ndim >= 2 and shapes[n].ndim]
