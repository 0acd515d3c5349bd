from torch.distributed.fsdp import fully_shard
from whole import summon_full_params

import fsdp2_sharding
from fsdp2_sharding import shard_model


def as_a_method(model):
    fully_shard(model)
    with fsdp2_sharding.summon_full_params(model):
        return {name: parameter.shape for name, parameter in model.named_parameters()}


def by_the_helper_module(model):
    fully_shard(model)
    with summon_full_params(model):
        return {name: parameter.shape for name, parameter in model.named_parameters()}


def of_another_model(model, other):
    model, other = shard_model(model), shard_model(other)
    with summon_full_params(other):
        # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match:
        #   it matched by flattened shapes before
        return {name: parameter.shape for name, parameter in model.named_parameters()}
