import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def clip(parameters, limit):
    return torch.nn.utils.clip_grad_norm_(parameters, limit)


class Optimizer:
    def __init__(self, optimizer, paras):
        self.optimizer, self.paras = optimizer, paras

    def step(self, loss):
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.paras, 1.0)
        self.optimizer.step()
        return norm


def lists(model):
    paras = []
    for name, p in model.named_parameters():
        paras.append(p)
    return paras, [{"params": paras}]


class Trainer:
    def __init__(self, net):
        self.model = FSDP(net, use_orig_params=True)
        self.trainable = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(self.trainable, lr=0.1)

    def step(self, loss):
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trainable, 1.0)
        self.optimizer.step()


def main(net, batches):
    model = FSDP(net, use_orig_params=True)
    paras, groups = lists(model)
    wrapped = Optimizer(torch.optim.SGD(groups, lr=0.1), paras)
    for batch in batches:
        wrapped.step(model(batch).mean())
        clip(model.parameters(), 1.0)
        torch.nn.utils.clip_grad_norm_(paras, 1.0)


def plain(net, batches):
    paras, groups = lists(net)
    optimizer = torch.optim.SGD(groups, lr=0.1)
    for batch in batches:
        net(batch).mean().backward()
        torch.nn.utils.clip_grad_norm_(paras, 1.0)
        optimizer.step()
