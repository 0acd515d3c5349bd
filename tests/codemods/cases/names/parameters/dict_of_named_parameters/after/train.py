import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from model import Model


def by_shape(model):
    named = {n: p for n, p in dict(model.named_parameters()).items() if p.requires_grad}
    # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match: it
    #   matched by flattened shapes before
    return [p for n, p in named.items() if p.dim() > 1]


def by_name(model):
    named = dict(model.named_parameters())
    # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match: it
    #   saw other names before
    plain = [n for n in named.keys() if n.endswith("norm.weight")]
    # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match: it
    #   saw other names before
    biases = [named[n] for n in named if "bias" in n]
    return [named[n] for n in plain], biases


def main(out):
    model = Model()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    decayed = by_shape(model)
    plain, biases = by_name(model)
    return torch.optim.AdamW([{"params": decayed}, {"params": plain + biases}])
