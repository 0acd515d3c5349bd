import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Model

WRAPPERS = (FSDPModule, DDP)


def answers(model):
    kinds = (DDP, FSDPModule)
    found = [
        isinstance(model, FSDPModule),
        isinstance(model, (FSDPModule, DDP)),
        isinstance(model, FSDPModule | DDP),
        isinstance(model, WRAPPERS),
        isinstance(model, kinds),
        not isinstance(model, FSDPModule),
        isinstance(model, FSDPModule),
        not isinstance(model, FSDPModule),
        isinstance(model, (FSDPModule, DDP)),
        not isinstance(model, (DDP, FSDPModule)),
        isinstance(model, FSDPModule),
        issubclass(type(model), FSDPModule),
        isinstance(model, FSDPModule),
        not isinstance(model, FSDPModule),
        isinstance(model, FSDPModule),
        not isinstance(model, FSDPModule),
        any(isinstance(part, FSDPModule) for part in model.modules()),
        len(list(filter(lambda part: isinstance(part, FSDPModule), model.modules()))),
    ]
    match model:
        case DDP():
            found.append("DDP")
        case FSDPModule():
            found.append("FSDP")
        case _:
            found.append("plain")
    return found


def main(out):
    sharded = Model()
    fully_shard(sharded, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return {"sharded": answers(sharded), "plain": answers(Model())}
