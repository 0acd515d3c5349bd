from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def wrap(model, sharded):
    return FSDP(model) if sharded else DDP(model)


def config_of(model, sharded):
    model = wrap(model, sharded)
    return model.module.config
