import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Model


def by_shape(model):
    named = {n: p for n, p in dict(model.named_parameters()).items() if p.requires_grad}
    return [p for n, p in named.items() if p.dim() > 1]


def by_name(model):
    named = dict(model.named_parameters())
    plain = [n for n in named.keys() if n.endswith("norm.weight")]
    biases = [named[n] for n in named if "bias" in n]
    return [named[n] for n in plain], biases


def main(out):
    model = FSDP(Model(), device_id=torch.device("cpu"))
    decayed = by_shape(model)
    plain, biases = by_name(model)
    return torch.optim.AdamW([{"params": decayed}, {"params": plain + biases}])
