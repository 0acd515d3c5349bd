import enum
from contextlib import nullcontext

from torch.distributed.fsdp import fully_shard
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
            # TODO(fsdp-migrate FM402): use `get_model_state_dict(model,
            #   options=StateDictOptions(full_state_dict=True))` for whole tensors or
            #   `get_model_state_dict(model)` for shards, from
            #   `torch.distributed.checkpoint.state_dict`
            return self.model.state_dict()


def main(cfg, model, batches):
    if cfg.strategy == Strategy.ddp:
        model = DDP(model)
    elif cfg.strategy == Strategy.fsdp:
        fully_shard(model)
    trainer = Trainer(cfg, model)
    trainer.step(batches)
    return trainer.weights()
