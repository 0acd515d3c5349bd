import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def build_optimizer(model, lr):
    return torch.optim.AdamW(model.parameters(), lr=lr)


class ShardedTrainer:
    def __init__(self, model):
        self.model = FSDP(model, use_orig_params=True)
        self.optimizer = build_optimizer(self.model, 0.1)

    def save(self, rank):
        torch.save(self.optimizer.state_dict(), f"optimizer{rank}.pt")


class PlainTrainer:
    def __init__(self, model):
        self.raw_model = model
        self.model = DDP(model)
        self.optimizer = build_optimizer(self.raw_model, 0.1)

    def save(self, rank):
        if rank == 0:
            torch.save(self.optimizer.state_dict(), "optimizer.pt")
