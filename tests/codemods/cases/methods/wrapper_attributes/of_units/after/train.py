import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard


def scaler_for(model):
    # TODO(fsdp-migrate FM310): keep what your configuration says; an FSDP2 model does
    #   not remember it
    half = model.mixed_precision.param_dtype == torch.float16
    return torch.amp.GradScaler(enabled=half)


def reduce_over_units(model, value):
    for unit in [
        module for module in model.modules() if isinstance(module, FSDPModule)
    ]:
        # TODO(fsdp-migrate FM310): every module given to `fully_shard` counts: test
        #   `isinstance(module, FSDPModule)`
        if unit._has_params and not unit._is_root:
            # TODO(fsdp-migrate FM310): use
            #   `next(model.parameters()).device_mesh.get_group()`, or keep the mesh; of
            #   two dimensions the one that shards
            dist.all_reduce(value, group=unit.process_group)
        # TODO(fsdp-migrate FM310): FSDP2 computes in the policy's dtype in evaluation
        #   too
        unit._use_full_prec_in_eval = True
    # TODO(fsdp-migrate FM310): keep what your configuration says; an FSDP2 model does
    #   not remember it
    return [
        unit.sharding_strategy
        for unit in [
            module for module in model.modules() if isinstance(module, FSDPModule)
        ]
    ]


def group_of(model):
    # TODO(fsdp-migrate FM310): use `next(model.parameters()).device_mesh.get_group()`,
    #   or keep the mesh; of two dimensions the one that shards
    if hasattr(model, "process_group"):
        # TODO(fsdp-migrate FM310): use
        #   `next(model.parameters()).device_mesh.get_group()`, or keep the mesh; of two
        #   dimensions the one that shards
        return getattr(model, "process_group", None)
    return None


def main(model, other):
    fully_shard(model)
    other.process_group = group_of(model)
    return scaler_for(model), reduce_over_units(model, torch.ones(1)), other
