import torch.distributed as dist
import torch.distributed._shard.checkpoint as dist_cp
from torch.distributed.checkpoint import (
    FileSystemReader,
    load_state_dict,
)
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
)
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


def save_sharded(model, folder, optim=None):
    writer = dist_cp.FileSystemWriter(folder)
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state_dict = {"model": model.state_dict()}
        if optim is not None:
            state_dict["optim"] = FSDP.optim_state_dict(model, optim)
        dist_cp.save_state_dict(
            state_dict=state_dict, storage_writer=writer, planner=DefaultSavePlanner()
        )
    dist.barrier()


def load_model_sharded(model, folder):
    reader = FileSystemReader(folder)
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        checkpoint = {"model": model.state_dict()}
        keys = checkpoint.keys()
        print(f" checkpoint keys =  {keys}")
        dist_cp.load_state_dict(state_dict=checkpoint, storage_reader=reader)
        model.load_state_dict(checkpoint["model"])


def resume(model, optimizer, folder):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = {"model": model.state_dict()}
        load_state_dict(
            state,
            storage_reader=FileSystemReader(folder),
            planner=DefaultLoadPlanner(),
        )
        model.load_state_dict(state["model"])
        optim_state = load_sharded_optimizer_state_dict(
            model_state_dict=state["model"],
            optimizer_key="optim",
            storage_reader=FileSystemReader(folder),
        )
        flattened = FSDP.optim_state_dict_to_load(
            model, optimizer, optim_state["optim"]
        )
        optimizer.load_state_dict(flattened)
