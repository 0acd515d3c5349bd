import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)


def load(model, optimizer, folder):
    state = {"model": get_model_state_dict(model)}
    dist_cp.load(
        state,
        storage_reader=FileSystemReader(folder),
        planner=DefaultLoadPlanner(),
    )
    set_model_state_dict(model, state["model"])
    optim_state = {"optim": get_optimizer_state_dict(model, optimizer)}
    dist_cp.load(optim_state, storage_reader=FileSystemReader(folder))
    set_optimizer_state_dict(model, optimizer, optim_state["optim"])
