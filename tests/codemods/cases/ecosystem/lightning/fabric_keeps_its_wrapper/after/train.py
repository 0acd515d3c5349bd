import lightning as L
import torch
from lightning.fabric.strategies import FSDPStrategy
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)

from model import Block, Net


def save(fabric, model, folder):
    policy = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model._forward_module, options=policy)
    if fabric.global_rank == 0:
        assert isinstance(model.module, Net)
        model.module.save(folder, weights)


def main():
    # TODO(fsdp-migrate FM630): use `ModelParallelStrategy(parallelize_fn=parallelize,
    #   data_parallel_size=world_size, tensor_parallel_size=1,
    #   save_distributed_checkpoint=True)`, and in `parallelize(model, device_mesh)`,
    #   once, call `fully_shard(module, mesh=device_mesh["data_parallel"])` on every
    #   module of {Block}, and on the model last; `world_size` is the number of all
    #   processes
    fabric = L.Fabric(strategy=FSDPStrategy(auto_wrap_policy={Block}))
    fabric.launch()
    model = Net()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters()))
    save(fabric, model, "out")
