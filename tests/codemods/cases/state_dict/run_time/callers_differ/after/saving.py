import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from fsdp2_sharding import load_model_state_dict, model_state_dict


def gather(model):
    return {"model": model_state_dict(model)}


def write_file(model, path):
    state = gather(model)
    if dist.get_rank() == 0:
        torch.save(state, path)


def write_shards(model, path):
    dcp.save(gather(model), checkpoint_id=path)


def read_shards(model, path):
    state = gather(model)
    dcp.load(state, checkpoint_id=path)
    load_model_state_dict(model, state["model"])
