import functools
import types
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


class Net(torch.nn.Module):
    def configured(self):
        return torch.optim.AdamW(self.parameters())


class WrapsInAMethod:
    def __init__(self):
        self.model = Net()
        # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from
        #   the sharded model's parameters
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def prepare(self):
        fully_shard(self.model)


class AsksTheModel:
    def __init__(self, model):
        self.model = model
        fully_shard(self.model)
        self.optimizer = self.model.configured()


class AsksTheModelInAMethod:
    def __init__(self, model):
        self.model = model
        self.make()
        fully_shard(self.model)

    def make(self):
        # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from
        #   the sharded model's parameters
        self.optimizer = self.model.configured()


class BuildsAndWrapsInMethods:
    def __init__(self, model):
        self.model = model
        self.make()
        self.wrap()

    def make(self):
        # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from
        #   the sharded model's parameters
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def wrap(self):
        fully_shard(self.model)


def namespace():
    job = types.SimpleNamespace()
    job.model = Net()
    fully_shard(job.model)
    job.optimizer = torch.optim.SGD(job.model.parameters(), lr=0.1)
    return job


def items():
    job = {}
    job["model"] = Net()
    # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from the
    #   sharded model's parameters
    job["optimizer"] = torch.optim.SGD(job["model"].parameters(), lr=0.1)
    fully_shard(job["model"])
    return job


def made():
    model = Net()
    # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from the
    #   sharded model's parameters
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def made_by_a_function():
    model, optimizer = made()
    fully_shard(model)
    return model, optimizer


def comprehensions(models):
    # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from the
    #   sharded model's parameters
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
    # TODO(fsdp-migrate FM103): build the modules first, then shard each and the model
    #   around them with fully_shard
    models = [FSDP(m, use_orig_params=True) for m in models]
    return models, optimizers


def loops(models):
    optimizers = []
    for model in models.values():
        # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from
        #   the sharded model's parameters
        optimizers.append(torch.optim.SGD(model.parameters(), lr=0.1))
    for name, model in models.items():
        models[name] = fully_shard(model)
    return models, optimizers


def loops_behind(models, others):
    for name, model in models.items():
        models[name] = fully_shard(model)
    first = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models.values()]
    second = [torch.optim.SGD(m.parameters(), lr=0.1) for m in others.values()]
    return models, first, second


def renamed():
    model = Net()
    opt = torch.optim.SGD
    fully_shard(model)
    optimizer = opt(model.parameters(), lr=0.1)
    return model, optimizer


def by_name(cfg):
    model = Net()
    fully_shard(model)
    optimizer = getattr(torch.optim, cfg.name)(model.parameters(), lr=0.1)
    return model, optimizer


OPTS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def from_a_dict(cfg):
    model = Net()
    fully_shard(model)
    optimizer = OPTS[cfg.name](model.parameters(), lr=0.1)
    return model, optimizer


def branches(cfg):
    model = Net()
    if cfg.adam:
        # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from
        #   the sharded model's parameters
        optimizer = torch.optim.Adam(model.parameters())
    else:
        # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from
        #   the sharded model's parameters
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fully_shard(model)
    return model, optimizer


def partly_given(cfg):
    model = Net()
    make = functools.partial(torch.optim.Adam, lr=0.1)
    fully_shard(model)
    optimizer = make(model.parameters())
    return model, optimizer


def class_given(cfg, optim_cls):
    model = Net()
    fully_shard(model)
    optimizer = optim_cls(model.parameters())
    return model, optimizer


def behind_the_wrap(cfg):
    model = Net()
    fsdp_model = fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return fsdp_model, optimizer


def listed_before(cfg):
    model = Net()
    params = list(model.parameters())
    fully_shard(model)
    # TODO(fsdp-migrate FM504): list the parameters after the model is sharded
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
