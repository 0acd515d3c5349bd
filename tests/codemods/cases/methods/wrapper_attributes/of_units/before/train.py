import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def scaler_for(model):
    half = model.mixed_precision.param_dtype == torch.float16
    return ShardedGradScaler(enabled=half)


def reduce_over_units(model, value):
    for unit in FSDP.fsdp_modules(model):
        if unit._has_params and not unit._is_root:
            dist.all_reduce(value, group=unit.process_group)
        unit._use_full_prec_in_eval = True
    return [unit.sharding_strategy for unit in FSDP.fsdp_modules(model)]


def group_of(model):
    if hasattr(model, "process_group"):
        return getattr(model, "process_group", None)
    return None


def main(model, other):
    model = FSDP(model)
    other.process_group = group_of(model)
    return scaler_for(model), reduce_over_units(model, torch.ones(1)), other
