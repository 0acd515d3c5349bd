import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model):
        self.model = fully_shard(model)
        for i, block in enumerate(self.model.blocks):
            self.model.blocks[i] = fully_shard(block)

    def total(self, x):
        # TODO(fsdp-migrate FM310): use
        #   `next(model.parameters()).device_mesh.get_group()`, or keep the mesh; of two
        #   dimensions the one that shards
        dist.all_reduce(x, group=self.model.blocks[0].process_group)
        # TODO(fsdp-migrate FM310): use
        #   `next(model.parameters()).device_mesh.get_group(...)` of the dimension that
        #   replicates
        dist.all_reduce(x, group=self.model._inter_node_pg)
        return x, self.model.blocks[0].rank

    def groups(self):
        # TODO(fsdp-migrate FM310): use
        #   `next(model.parameters()).device_mesh.get_group()`, or keep the mesh; of two
        #   dimensions the one that shards
        first = next(
            m for m in self.model.modules() if isinstance(m, FSDPModule)
        ).process_group
        # TODO(fsdp-migrate FM310): use
        #   `next(model.parameters()).device_mesh.get_group()`, or keep the mesh; of two
        #   dimensions the one that shards
        return first, [
            m.process_group for m in self.model.modules() if isinstance(m, FSDPModule)
        ]


def ranks_of(module):
    if isinstance(module, DDP):
        return dist.get_world_size(module.process_group)
    module.init()
    module.apply(print)
    if isinstance(module, FSDPModule):
        # TODO(fsdp-migrate FM310): use
        #   `next(model.parameters()).device_mesh.get_group()`, or keep the mesh; of two
        #   dimensions the one that shards
        return dist.get_world_size(module.process_group)
    return len(module.process_group)


def of_either(module, x):
    assert isinstance(module, (FSDPModule, DDP))
    # TODO(fsdp-migrate FM310): use `next(model.parameters()).device_mesh.get_group()`,
    #   or keep the mesh; of two dimensions the one that shards
    dist.all_reduce(x, group=module.process_group)


def shown(module):
    # TODO(fsdp-migrate FM310): keep what your configuration says; an FSDP2 model does
    #   not remember it
    if isinstance(module, FSDPModule) and hasattr(module, "sharding_strategy"):
        print(module.sharding_strategy)
