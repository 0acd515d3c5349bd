from dataclasses import replace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from model import Block


def shard(net):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    unit_precision = MixedPrecisionPolicy(
        reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    root_precision = replace(unit_precision, cast_forward_inputs=True)
    for module in reversed(list(net.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh, mp_policy=unit_precision)
    return fully_shard(net, mesh=mesh, mp_policy=root_precision)
