import decorated
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, path):
    torch.save(model.state_dict(), path)


def save_on_all(model, path):
    state = model.state_dict()
    if dist.get_rank() == 0:
        torch.save(state, path)


def save_inner(model, path):
    inner = model.module if hasattr(model, "module") else model
    torch.save(inner.state_dict(), path)


def rank_zero_only(function):
    return lambda *given: function(*given) if dist.get_rank() == 0 else None


class Saver:
    def __init__(self, model):
        self.model = FSDP(model, use_orig_params=True)

    @rank_zero_only
    def save(self, path):
        torch.save(self.model.state_dict(), path)

    def save_later(self, path):
        self.write(path)

    def write(self, path):
        torch.save(self.model.state_dict(), path)

    def loop(self):
        if dist.get_rank() != 0:
            return
        self.save_later("last.pt")


def main(distributed):
    model = nn.Linear(4, 4)
    if distributed:
        model = FSDP(model, use_orig_params=True)
        if dist.get_rank() == 0:
            save_inner(model, "inner.pt")
    else:
        save_inner(model, "inner.pt")


@decorated.main(config="rank_zero_only")
def train():
    model = FSDP(nn.Linear(4, 4), use_orig_params=True)
    save_on_all(model, "all.pt")
    if dist.get_rank() == 0:
        save(model, "model.pt")
    Saver(nn.Linear(4, 4)).loop()
