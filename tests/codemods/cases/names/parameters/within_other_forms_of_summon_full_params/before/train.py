from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from whole import summon_full_params


def as_a_method(model):
    model = FSDP(model)
    with model.summon_full_params(model):
        return {name: parameter.shape for name, parameter in model.named_parameters()}


def by_the_helper_module(model):
    model = FSDP(model)
    with summon_full_params(model):
        return {name: parameter.shape for name, parameter in model.named_parameters()}


def of_another_model(model, other):
    model, other = FSDP(model), FSDP(other)
    with summon_full_params(other):
        return {name: parameter.shape for name, parameter in model.named_parameters()}
