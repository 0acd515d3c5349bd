import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import (
    FileSystemReader,
    FileSystemWriter,
    load_state_dict,
)
from torch.distributed.fsdp import fully_shard


def shard(model):
    return fully_shard(model)


def save(state, folder):
    dcp.save(state, storage_writer=FileSystemWriter(folder))


def load(state, folder):
    dcp.load(state_dict=state, storage_reader=FileSystemReader(folder))


def load_alone(state, folder):
    load_state_dict(state, FileSystemReader(folder), no_dist=True)
