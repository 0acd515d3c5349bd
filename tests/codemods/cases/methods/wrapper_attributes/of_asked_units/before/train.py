import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model):
        self.model = FSDP(model)
        for i, block in enumerate(self.model.blocks):
            self.model.blocks[i] = FSDP(block)

    def total(self, x):
        dist.all_reduce(x, group=self.model.blocks[0].process_group)
        dist.all_reduce(x, group=self.model._inter_node_pg)
        return x, self.model.blocks[0].rank

    def groups(self):
        first = next(
            m for m in self.model.modules() if isinstance(m, FSDP)
        ).process_group
        return first, [
            m.process_group for m in self.model.modules() if isinstance(m, FSDP)
        ]


def ranks_of(module):
    if isinstance(module, DDP):
        return dist.get_world_size(module.process_group)
    module.init()
    module.apply(print)
    if isinstance(module, FSDP):
        return dist.get_world_size(module.process_group)
    return len(module.process_group)


def of_either(module, x):
    assert isinstance(module, (FSDP, DDP))
    dist.all_reduce(x, group=module.process_group)


def shown(module):
    if isinstance(module, FSDP) and hasattr(module, "sharding_strategy"):
        print(module.sharding_strategy)
