import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from optimizers import build_optimizer


def shard(model, config):
    if config.compile:
        model = torch.compile(model)
    return FSDP(model, use_orig_params=True)


class Trainer:
    """What is given to both functions is no model: each optimizer is built after its wrap."""

    def __init__(self, model, config):
        self.config = config
        if config.resume:
            model.load_state_dict(torch.load(config.resume))
            self.model = shard(model, self.config)
            self.optimizer = build_optimizer(self.model, self.config)
        else:
            self.model = shard(model, self.config)
            self.model.init_weights()
            self.optimizer = build_optimizer(self.model, self.config)
