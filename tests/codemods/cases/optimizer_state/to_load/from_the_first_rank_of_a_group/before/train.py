import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, optimizer):
    group = dist.new_group([0, 1])
    model = FSDP(model, group)
    return FSDP.full_optim_state_dict(model, optimizer, group=group)


def save_all(model, optimizer):
    model = FSDP(model, dist.new_group([0, 1]))
    return FSDP.full_optim_state_dict(model, optimizer, group=dist.group.WORLD)


def resume_all(model, make_optimizer, saved, mesh):
    model = FSDP(model, process_group=None, device_mesh=mesh)
    optimizer = make_optimizer(model)
    state = FSDP.scatter_full_optim_state_dict(saved, model, optim=optimizer)
    optimizer.load_state_dict(state)


def state_of_part(model, mesh):
    model = FSDP(model, **{"device_mesh": mesh["data"]})
    full = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, full):
        return model.state_dict()
