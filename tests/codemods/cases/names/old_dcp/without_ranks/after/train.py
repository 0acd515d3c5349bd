import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard


def shard(model):
    return fully_shard(model)


def save(state, folder, alone):
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder), no_dist=alone)


def load(state, folder):
    dcp.load(
        state,
        storage_reader=dcp.FileSystemReader(folder),
        process_group=None,
        no_dist=True,
    )
