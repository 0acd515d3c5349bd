import torch
from lightning.fabric.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy


def save(fabric, model, path):
    if isinstance(fabric.strategy, FSDPStrategy):
        state = model._forward_module.state_dict()
    else:
        state = model.state_dict()
    torch.save(state, path)


def is_sharded(strategy):
    return isinstance(strategy, (DeepSpeedStrategy, FSDPStrategy))


def is_either(strategy):
    return isinstance(strategy, (ModelParallelStrategy, FSDPStrategy))
