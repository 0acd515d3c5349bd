import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies import FSDPStrategy
from torch.distributed.fsdp import FullyShardedDataParallel


def main(model, build):
    # TODO(fsdp-migrate FM630): use `ModelParallelStrategy(parallelize_fn=parallelize,
    #   data_parallel_size=world_size, tensor_parallel_size=1,
    #   save_distributed_checkpoint=True)`, and in `parallelize(model, device_mesh)`,
    #   once, call `fully_shard(module, mesh=device_mesh["data_parallel"])` on every
    #   module of {torch.nn.Linear}, and on the model last; `world_size` is the number
    #   of all processes
    fabric = Fabric(strategy=FSDPStrategy(auto_wrap_policy={torch.nn.Linear}))
    model = fabric.setup_module(model)
    inner = model._forward_module
    # TODO(fsdp-migrate FM501): ask for `FSDPModule` once the strategy is changed
    if inner.__class__.__name__ == "FullyShardedDataParallel":
        build(inner)
    # TODO(fsdp-migrate FM501): ask for `FSDPModule` once the strategy is changed
    return isinstance(inner, FullyShardedDataParallel)
