import torch
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


class SingleAccelerator(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return self.module(*args)


def shard(model, how):
    if how == "fsdp":
        return FSDP(model, use_orig_params=True)
    if how == "ddp":
        return DDP(model)
    return SingleAccelerator(model)


class Checkpointer:
    def save(self, dist_model, optimizer, path):
        if isinstance(dist_model, FSDP):
            with FSDP.state_dict_type(
                dist_model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)
            ):
                state = dist_model.state_dict()
            moments = FSDP.optim_state_dict(dist_model, optimizer)
        elif isinstance(dist_model, (DDP, SingleAccelerator)):
            state = dist_model.module.state_dict()
            moments = optimizer.state_dict()
        else:
            raise NotImplementedError(type(dist_model))
        torch.save({"model": state, "optimizer": moments}, path)

    def restore(self, dist_model, path):
        if isinstance(dist_model, FSDP):
            dist_model.load_state_dict(torch.load(path)["model"])
            return
        dist_model.module.load_state_dict(torch.load(path)["model"])


def main(path, how):
    model = shard(nn.Linear(4, 4), how)
    checkpointer = Checkpointer()
    checkpointer.restore(model, path)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpointer.save(model, optimizer, path)
