import torch
import torch.distributed.checkpoint as dcp
from packaging import version
from torch.distributed.fsdp import fully_shard


def save(state, folder):
    if version.parse(torch.__version__) < version.parse("2.2.0"):
        dcp.save_state_dict(state, dcp.FileSystemWriter(folder))
    else:
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder))
    if torch.__version__ >= "2.2":
        dcp.load(state, storage_reader=dcp.FileSystemReader(folder))
    else:
        dcp.load_state_dict(state, dcp.FileSystemReader(folder))
    if torch.__version__ > "1.13":
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder))
    if folder.endswith("old") or torch.__version__ < "2.2":
        dcp.load(state, storage_reader=dcp.FileSystemReader(folder))
    return fully_shard(state)
