import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def wrap(model):
    return fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def optimizer_for(model):
    trainable = [p for p in model.parameters() if p.requires_grad]
    # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from the
    #   sharded model's parameters
    return torch.optim.AdamW(trainable, lr=0.01)


def late_optimizer_for(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


class Trainer:
    def __init__(self, model):
        self.model = model
        # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from
        #   the sharded model's parameters
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def setup(self):
        fully_shard(self.model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
