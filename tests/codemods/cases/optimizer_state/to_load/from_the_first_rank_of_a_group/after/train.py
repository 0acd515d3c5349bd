import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import full_tensors, load_full_optimizer, shard_model


def save(model, optimizer):
    group = dist.new_group([0, 1])
    model = shard_model(model, process_group=group)
    return full_tensors(
        get_optimizer_state_dict(model, optimizer), offload_to_cpu=True, rank0_only=True
    )


def save_all(model, optimizer):
    model = shard_model(model, process_group=dist.new_group([0, 1]))
    return get_optimizer_state_dict(
        model,
        optimizer,
        options=StateDictOptions(full_state_dict=True, cpu_offload=True),
    )


def resume_all(model, make_optimizer, saved, mesh):
    fully_shard(model, mesh=mesh)
    optimizer = make_optimizer(model)
    load_full_optimizer(model, optimizer, saved, broadcast=True)


def state_of_part(model, mesh):
    model = shard_model(model, **{"device_mesh": mesh["data"]})
    return full_tensors(
        get_model_state_dict(model), offload_to_cpu=True, rank0_only=True
    )
