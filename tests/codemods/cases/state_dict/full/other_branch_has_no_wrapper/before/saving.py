import torch
from torch.distributed.fsdp import (
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, kind):
        self.kind = kind

    def prepare(self, model):
        if self.kind == "fsdp":
            model = FSDP(model, made_up=True)
        elif self.kind == "ddp":
            model = DistributedDataParallel(model)
        return model

    def whole(self, model):
        if self.kind == "fsdp":
            config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
                state = model.state_dict()
        else:
            state = model.state_dict()
        return state


def main(model, kind, path):
    trainer = Trainer(kind)
    model = trainer.prepare(model)
    torch.save(trainer.whole(model), path)
