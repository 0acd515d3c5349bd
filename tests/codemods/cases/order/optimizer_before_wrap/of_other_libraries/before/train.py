from apex.optimizers import FusedLAMB
from model import Model
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import Adafactor


def from_a_list(model):
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = Adafactor(params, lr=1e-3)
    model = FSDP(model, use_orig_params=True)
    return model, optimizer


def by_keyword(model):
    trainable_params = [p for p in model.parameters() if p.requires_grad]
    optimizer = FusedLAMB(params=trainable_params, lr=1e-3)
    model = FSDP(model, use_orig_params=True)
    return model, optimizer


def main(ddp):
    model = Model()
    optimizer = model.configure_optimizers(1e-3)
    if ddp:
        model = FSDP(model, use_orig_params=True)
    model(1).backward()
    optimizer.step()
