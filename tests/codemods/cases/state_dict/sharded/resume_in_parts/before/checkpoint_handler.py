import torch.distributed as dist
from torch.distributed.checkpoint import (
    FileSystemReader,
    FileSystemWriter,
    load_state_dict,
    save_state_dict,
)
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


def save_sharded(model, folder, optimizer):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        model_state = model.state_dict()
        optim_state = FSDP.sharded_optim_state_dict(model, optimizer)
    state_dict = {"model_state": model_state, "optimizer_state": optim_state}
    save_state_dict(state_dict=state_dict, storage_writer=FileSystemWriter(folder))
    dist.barrier()


def resume(model, optimizer, folder):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        checkpoint = {"model_state": model.state_dict()}
        load_state_dict(
            state_dict=checkpoint,
            storage_reader=FileSystemReader(folder),
            planner=DefaultLoadPlanner(),
        )
        model.load_state_dict(checkpoint["model_state"])
    if optimizer is not None:
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            optim_state = load_sharded_optimizer_state_dict(
                model_state_dict=model.state_dict(),
                optimizer_key="optimizer_state",
                storage_reader=FileSystemReader(folder),
            )
        flattened = FSDP.optim_state_dict_to_load(
            model, optimizer, optim_state["optimizer_state"]
        )
        optimizer.load_state_dict(flattened)
