from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import numbered_optim_state


def prepare(model, optimizer, saved):
    fully_shard(model)
    return numbered_optim_state(model, optimizer, saved)
