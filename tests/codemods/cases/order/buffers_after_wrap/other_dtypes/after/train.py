import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.make_tables()

    def make_tables(self):
        self.register_buffer("cos", torch.arange(4.0).cos(), persistent=False)

    def reset_parameters(self):
        self.make_tables()


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(4))

    def init_buffers(self):
        self.scale = torch.ones(4)

    def generate(self):
        self.register_buffer("cache", torch.zeros(4), persistent=False)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.rotary = Rotary()
        self.scaled = Scaled()

    def forward(self, x):
        return self.up(x) * self.rotary.cos * self.scaled.scale

    def init_weights(self):
        nn.init.normal_(self.up.weight, std=0.02)
        self.rotary.reset_parameters()

    def init_other(self):
        self.scaled.init_buffers()

    def generate(self):
        return self.scaled.generate()


def build():
    net = Net()
    net.init_weights()
    precision = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16
    )
    model = fully_shard(net, mp_policy=precision)
    model.init_weights()
    model.init_other()
    model.generate()
    return model
