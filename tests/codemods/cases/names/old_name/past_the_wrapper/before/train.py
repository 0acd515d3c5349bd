import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Model, batch, loss_of


class Trainer:
    def __init__(self):
        self.model = Model()
        self.model.load_state_dict(torch.load("start.pt"))
        self.fsdp_model = FSDP(self.model)

    def save(self, path):
        torch.save(self.model.state_dict(), path)


def main():
    model = Model()
    before = model.state_dict()
    fsdp_model = FSDP(model)
    optimizer = torch.optim.AdamW(model.parameters())
    loss_of(fsdp_model, batch(0)).backward()
    optimizer.step()
    print(sum(p.numel() for p in model.parameters()))
    for name, parameter in model.named_parameters():
        print(name, parameter.shape)
    torch.save([before, model.state_dict()], "end.pt")
    model = Model()
    return model.state_dict()


def wrap(original):
    return FSDP(original, use_orig_params=True)


def through_a_function(path):
    model = Model()
    sharded_model = wrap(model)
    torch.save(model.state_dict(), path)
    return sharded_model
