import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


def resume(model, optimizers, reader, states):
    model = FSDP(model)
    if states is None:
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            weights = {"model": model.state_dict()}
            dcp.load(weights, storage_reader=reader)
            model.load_state_dict(weights["model"])
            for number, optim in enumerate(optimizers):
                key = f"optimizer_{number}"
                saved = load_sharded_optimizer_state_dict(weights["model"], key, reader)
                optim.load_state_dict(FSDP.optim_state_dict_to_load(model, optim, saved[key]))
    else:
        for optimizer, state in zip(optimizers, states):
            optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state))
