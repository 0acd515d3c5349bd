import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model):
    return FSDP(model)


def save(state, folder):
    dcp.save_state_dict(
        state,
        dcp.FileSystemWriter(folder),
        process_group=None,
        coordinator_rank=0,
        no_dist=False,
    )


def load(state, folder):
    dcp.load_state_dict(state, dcp.FileSystemReader(folder), no_dist=False)


def load_from_second(state, folder):
    dcp.load_state_dict(state, dcp.FileSystemReader(folder), coordinator_rank=1)
