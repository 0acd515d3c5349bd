import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import (
    FileSystemReader,
    FileSystemWriter,
)
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)


def save_sharded(model, folder, optimizer):
    model_state = get_model_state_dict(model)
    optim_state = get_optimizer_state_dict(model, optimizer)
    state_dict = {"model_state": model_state, "optimizer_state": optim_state}
    dcp.save(state_dict=state_dict, storage_writer=FileSystemWriter(folder))
    dist.barrier()


def resume(model, optimizer, folder):
    checkpoint = {"model_state": get_model_state_dict(model)}
    dcp.load(
        state_dict=checkpoint,
        storage_reader=FileSystemReader(folder),
        planner=DefaultLoadPlanner(),
    )
    set_model_state_dict(model, checkpoint["model_state"])
    if optimizer is not None:
        optim_state = {"optimizer_state": get_optimizer_state_dict(model, optimizer)}
        dcp.load(optim_state, storage_reader=FileSystemReader(folder))
        set_optimizer_state_dict(model, optimizer, optim_state["optimizer_state"])
