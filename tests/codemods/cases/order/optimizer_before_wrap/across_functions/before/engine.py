import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(model):
    return FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)


def optimizer_for(model):
    trainable = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trainable, lr=0.01)


def late_optimizer_for(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def setup(self):
        self.model = FSDP(self.model, device_id=torch.device("cpu"))
