import torch
from torch.distributed.fsdp import fully_shard


def by_shape(model):
    # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match: it
    #   matched by flattened shapes before
    return [
        {"params": [p for n, p in model.named_parameters() if p.dim() > 1]},
        {"params": [p for n, p in model.named_parameters() if p.dim() <= 1]},
    ]


def by_name(model):
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match:
        #   it saw other names before
        if name.endswith(".bias"):
            others.append(parameter)
        else:
            decayed.append(parameter)
    return decayed, others


def main(model):
    fully_shard(model)
    return torch.optim.AdamW(by_shape(model)), by_name(model)
