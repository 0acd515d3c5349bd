import enum
from contextlib import nullcontext

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


class Strategy(enum.Enum):
    ddp = "ddp"
    fsdp = "fsdp"


class Trainer:
    def __init__(self, cfg, model):
        self.cfg = cfg
        self.model = model

    def step(self, batches):
        for number, batch in enumerate(batches):
            context = nullcontext
            if self.cfg.strategy == Strategy.ddp and self.cfg.delay:
                if number < len(batches) - 1:
                    context = self.model.no_sync
            with context():
                self.model(batch).sum().backward()

    def weights(self):
        if self.cfg.strategy == Strategy.ddp:
            return self.model.module.state_dict()
        if self.cfg.strategy == Strategy.fsdp:
            return self.model.state_dict()


def main(cfg, model, batches):
    if cfg.strategy == Strategy.ddp:
        model = DDP(model)
    elif cfg.strategy == Strategy.fsdp:
        model = FSDP(model, use_orig_params=True)
    trainer = Trainer(cfg, model)
    trainer.step(batches)
    return trainer.weights()
