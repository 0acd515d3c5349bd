import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import load_full_optimizer, shard_model


def resume(model, make_optimizer, saved):
    group = dist.new_group([0, 1])
    model = shard_model(model, process_group=group)
    optimizer = make_optimizer(model)
    # TODO(fsdp-migrate FM405): use `set_optimizer_state_dict(model, optimizer, state,
    #   options=...)` from `torch.distributed.checkpoint.state_dict`; it loads by
    #   itself, so the following `optimizer.load_state_dict` goes
    state = FSDP.scatter_full_optim_state_dict(saved, model, optim=optimizer)
    optimizer.load_state_dict(state)


def resume_part(model, make_optimizer, saved, mesh):
    model = shard_model(model, **{"device_mesh": mesh["data"]})
    optimizer = make_optimizer(model)
    # TODO(fsdp-migrate FM405): use `set_optimizer_state_dict(model, optimizer, state,
    #   options=...)` from `torch.distributed.checkpoint.state_dict`; it loads by
    #   itself, so the following `optimizer.load_state_dict` goes
    state = FSDP.scatter_full_optim_state_dict(saved, model, optim=optimizer)
    optimizer.load_state_dict(state)


def resume_all(model, make_optimizer, saved, mesh):
    fully_shard(model, mesh=mesh)
    optimizer = make_optimizer(model)
    load_full_optimizer(model, optimizer, saved, broadcast=True)
