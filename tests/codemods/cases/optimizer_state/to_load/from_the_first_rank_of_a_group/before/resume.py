import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def resume(model, make_optimizer, saved):
    group = dist.new_group([0, 1])
    model = FSDP(model, group)
    optimizer = make_optimizer(model)
    state = FSDP.scatter_full_optim_state_dict(saved, model, optim=optimizer, group=group)
    optimizer.load_state_dict(state)
