from apex.optimizers import FusedLAMB
from model import Model
from torch.distributed.fsdp import fully_shard
from transformers import Adafactor


def from_a_list(model):
    fully_shard(model)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = Adafactor(params, lr=1e-3)
    return model, optimizer


def by_keyword(model):
    fully_shard(model)
    trainable_params = [p for p in model.parameters() if p.requires_grad]
    optimizer = FusedLAMB(params=trainable_params, lr=1e-3)
    return model, optimizer


def main(ddp):
    model = Model()
    if ddp:
        fully_shard(model)
    optimizer = model.configure_optimizers(1e-3)
    model(1).backward()
    optimizer.step()
