import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def resume(model, make_optimizer, saved):
    group = dist.new_group([0, 1])
    model = FSDP(model, group)
    optimizer = make_optimizer(model)
    state = FSDP.scatter_full_optim_state_dict(saved, model, optim=optimizer)
    optimizer.load_state_dict(state)


def resume_part(model, make_optimizer, saved, mesh):
    model = FSDP(model, **{"device_mesh": mesh["data"]})
    optimizer = make_optimizer(model)
    state = FSDP.scatter_full_optim_state_dict(saved, model, optim=optimizer)
    optimizer.load_state_dict(state)


def resume_all(model, make_optimizer, saved, mesh):
    model = FSDP(model, process_group=None, device_mesh=mesh)
    optimizer = make_optimizer(model)
    state = FSDP.scatter_full_optim_state_dict(saved, model, optim=optimizer)
    optimizer.load_state_dict(state)
