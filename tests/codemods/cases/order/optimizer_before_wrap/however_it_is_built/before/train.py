import functools
import types
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(torch.nn.Module):
    def configured(self):
        return torch.optim.AdamW(self.parameters())


class WrapsInAMethod:
    def __init__(self):
        self.model = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def prepare(self):
        self.model = FSDP(self.model, use_orig_params=True)


class AsksTheModel:
    def __init__(self, model):
        self.model = model
        self.optimizer = self.model.configured()
        self.model = FSDP(self.model, use_orig_params=True)


class AsksTheModelInAMethod:
    def __init__(self, model):
        self.model = model
        self.make()
        self.model = FSDP(self.model, use_orig_params=True)

    def make(self):
        self.optimizer = self.model.configured()


class BuildsAndWrapsInMethods:
    def __init__(self, model):
        self.model = model
        self.make()
        self.wrap()

    def make(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def wrap(self):
        self.model = FSDP(self.model, use_orig_params=True)


def namespace():
    job = types.SimpleNamespace()
    job.model = Net()
    job.optimizer = torch.optim.SGD(job.model.parameters(), lr=0.1)
    job.model = FSDP(job.model, use_orig_params=True)
    return job


def items():
    job = {}
    job["model"] = Net()
    job["optimizer"] = torch.optim.SGD(job["model"].parameters(), lr=0.1)
    job["model"] = FSDP(job["model"], use_orig_params=True)
    return job


def made():
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def made_by_a_function():
    model, optimizer = made()
    model = FSDP(model, use_orig_params=True)
    return model, optimizer


def comprehensions(models):
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
    models = [FSDP(m, use_orig_params=True) for m in models]
    return models, optimizers


def loops(models):
    optimizers = []
    for model in models.values():
        optimizers.append(torch.optim.SGD(model.parameters(), lr=0.1))
    for name, model in models.items():
        models[name] = FSDP(model, use_orig_params=True)
    return models, optimizers


def loops_behind(models, others):
    for name, model in models.items():
        models[name] = FSDP(model, use_orig_params=True)
    first = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models.values()]
    second = [torch.optim.SGD(m.parameters(), lr=0.1) for m in others.values()]
    return models, first, second


def renamed():
    model = Net()
    opt = torch.optim.SGD
    optimizer = opt(model.parameters(), lr=0.1)
    model = FSDP(model, use_orig_params=True)
    return model, optimizer


def by_name(cfg):
    model = Net()
    optimizer = getattr(torch.optim, cfg.name)(model.parameters(), lr=0.1)
    model = FSDP(model, use_orig_params=True)
    return model, optimizer


OPTS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def from_a_dict(cfg):
    model = Net()
    optimizer = OPTS[cfg.name](model.parameters(), lr=0.1)
    model = FSDP(model, use_orig_params=True)
    return model, optimizer


def branches(cfg):
    model = Net()
    if cfg.adam:
        optimizer = torch.optim.Adam(model.parameters())
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model = FSDP(model, use_orig_params=True)
    return model, optimizer


def partly_given(cfg):
    model = Net()
    make = functools.partial(torch.optim.Adam, lr=0.1)
    optimizer = make(model.parameters())
    model = FSDP(model, use_orig_params=True)
    return model, optimizer


def class_given(cfg, optim_cls):
    model = Net()
    optimizer = optim_cls(model.parameters())
    model = FSDP(model, use_orig_params=True)
    return model, optimizer


def behind_the_wrap(cfg):
    model = Net()
    fsdp_model = FSDP(model, use_orig_params=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return fsdp_model, optimizer


def listed_before(cfg):
    model = Net()
    params = list(model.parameters())
    model = FSDP(model, use_orig_params=True)
    optimizer = torch.optim.SGD(params, lr=0.1)
    return model, optimizer


def main():
    WrapsInAMethod()
    AsksTheModel(Net())
    AsksTheModelInAMethod(Net())
    BuildsAndWrapsInMethods(Net())
    items()
    from_a_dict(1)
    partly_given(1)
    listed_before(1)
