from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def export(model, sharded):
    model = FSDP(model) if sharded else DDP(model)
    with model.module.summon_full_params(model.module):
        return {name: p.clone() for name, p in model.named_parameters()}


def average(model, decay):
    model = FSDP(model)
    with model.module.summon_full_params(model.module):
        for p in model.parameters():
            p.data.mul_(decay)
