import lightning as L
import torch
from lightning.fabric.strategies import FSDPStrategy
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Block, Net


def save(fabric, model, folder):
    policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
        weights = model._forward_module.state_dict()
    if fabric.global_rank == 0:
        assert isinstance(model.module, Net)
        model.module.save(folder, weights)


def main():
    fabric = L.Fabric(strategy=FSDPStrategy(auto_wrap_policy={Block}))
    fabric.launch()
    model = Net()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters()))
    save(fabric, model, "out")
