import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def gather(model):
    return {"model": model.state_dict()}


def write_file(model, path):
    state = gather(model)
    if dist.get_rank() == 0:
        torch.save(state, path)


def write_shards(model, path):
    dcp.save(gather(model), checkpoint_id=path)


def read_shards(model, path):
    state = gather(model)
    dcp.load(state, checkpoint_id=path)
    model.load_state_dict(state["model"])
