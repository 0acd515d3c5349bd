import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard


def shard(model):
    return fully_shard(model)


def save(state, folder):
    dcp.save(
        state,
        storage_writer=dcp.FileSystemWriter(folder),
        process_group=None,
    )


def load(state, folder):
    dcp.load(state, storage_reader=dcp.FileSystemReader(folder))


def load_from_second(state, folder):
    # TODO(fsdp-migrate FM410): call `torch.distributed.checkpoint.load`
    dcp.load_state_dict(state, dcp.FileSystemReader(folder), coordinator_rank=1)
