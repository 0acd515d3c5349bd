import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import load_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model):
    return FSDP(model)


def save(state, folder, alone):
    dcp.save_state_dict(state, dcp.FileSystemWriter(folder), no_dist=alone)


def load(state, folder):
    load_state_dict(state, dcp.FileSystemReader(folder), None, no_dist=True)
