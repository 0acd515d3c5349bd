import torch.distributed as dist
import torch.distributed._shard.checkpoint as dist_cp
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import (
    FileSystemReader,
)
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
)
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)


def save_sharded(model, folder, optim=None):
    writer = dist_cp.FileSystemWriter(folder)
    state_dict = {"model": get_model_state_dict(model)}
    if optim is not None:
        state_dict["optim"] = get_optimizer_state_dict(
            model, optim, options=StateDictOptions(cpu_offload=True)
        )
    dcp.save(state_dict=state_dict, storage_writer=writer, planner=DefaultSavePlanner())
    dist.barrier()


def load_model_sharded(model, folder):
    reader = FileSystemReader(folder)
    checkpoint = {"model": get_model_state_dict(model)}
    keys = checkpoint.keys()
    print(f" checkpoint keys =  {keys}")
    dcp.load(state_dict=checkpoint, storage_reader=reader)
    set_model_state_dict(model, checkpoint["model"])


def resume(model, optimizer, folder):
    state = {"model": get_model_state_dict(model)}
    dcp.load(
        state,
        storage_reader=FileSystemReader(folder),
        planner=DefaultLoadPlanner(),
    )
    set_model_state_dict(model, state["model"])
    optim_state = {"optim": get_optimizer_state_dict(model, optimizer)}
    dcp.load(optim_state, storage_reader=FileSystemReader(folder))
    set_optimizer_state_dict(model, optimizer, optim_state["optim"])
