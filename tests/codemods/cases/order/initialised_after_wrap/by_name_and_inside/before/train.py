import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 4)

    def forward(self, x):
        return self.up(x)

    def reset_parameters(self):
        nn.init.normal_(self.up.weight, std=0.02)

    def init_model_weights(self):
        self.reset_parameters()


def inside():
    with torch.device("meta"):
        net = Net()
    sharded = FSDP(
        net,
        param_init_fn=lambda module: module.to_empty(device="cpu", recurse=False),
        use_orig_params=True,
    )
    net.reset_parameters()
    return sharded


def by_name():
    model = Net()
    model.reset_parameters()
    model = FSDP(model, use_orig_params=True)
    model.reset_parameters()
    model.init_model_weights()
    return model


def before():
    net = Net()
    net.reset_parameters()
    return FSDP(net, use_orig_params=True)
