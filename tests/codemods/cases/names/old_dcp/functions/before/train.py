from torch.distributed.checkpoint import (
    FileSystemReader,
    FileSystemWriter,
    load_state_dict,
    save_state_dict,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model):
    return FSDP(model)


def save(state, folder):
    save_state_dict(state, FileSystemWriter(folder))


def load(state, folder):
    load_state_dict(state_dict=state, storage_reader=FileSystemReader(folder))


def load_alone(state, folder):
    load_state_dict(state, FileSystemReader(folder), no_dist=True)
