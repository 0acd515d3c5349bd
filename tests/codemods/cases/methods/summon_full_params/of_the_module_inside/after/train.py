from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from fsdp2_sharding import shard_model, summon_full_params


def export(model, sharded):
    model = shard_model(model) if sharded else DDP(model)
    with summon_full_params(getattr(model, "module", model)):
        return {name: p.clone() for name, p in model.named_parameters()}


def average(model, decay):
    fully_shard(model)
    with summon_full_params(model):
        for p in model.parameters():
            p.data.mul_(decay)
