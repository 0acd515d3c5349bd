import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, kind):
        self.kind = kind

    def prepare(self, model):
        if self.kind == "fsdp":
            # TODO(fsdp-migrate FM104): remove it, or rewrite this call by hand
            model = FSDP(model, made_up=True)
        elif self.kind == "ddp":
            model = DistributedDataParallel(model)
        return model

    def whole(self, model):
        if self.kind == "fsdp":
            config = StateDictOptions(full_state_dict=True, cpu_offload=True)
            state = get_model_state_dict(model, options=config)
        else:
            state = model.state_dict()
        return state


def main(model, kind, path):
    trainer = Trainer(kind)
    model = trainer.prepare(model)
    torch.save(trainer.whole(model), path)
