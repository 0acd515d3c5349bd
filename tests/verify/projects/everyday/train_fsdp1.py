import functools
from types import SimpleNamespace

from job import Block, train
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    ShardedStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

CONFIG = FullStateDictConfig(rank0_only=True)


def shard(model, dtype):
    return FSDP(
        model,
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
        mixed_precision=MixedPrecision(param_dtype=dtype, reduce_dtype=dtype),
        use_orig_params=True,
    )


def sharded(model, optimizer):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig()):
        return {"model": model.state_dict(), "optim": FSDP.optim_state_dict(model, optimizer)}


def full(model, optimizer):
    with FSDP.state_dict_type(
        model, StateDictType.FULL_STATE_DICT, CONFIG, FullOptimStateDictConfig(rank0_only=True)
    ):
        state = {"model": model.state_dict(), "optim": FSDP.full_optim_state_dict(model, optimizer)}
    CONFIG.offload_to_cpu = True  # as Accelerate does before each checkpoint
    return state


train(shard, SimpleNamespace(sharded=sharded, full=full), ShardedGradScaler(init_scale=2.0**12))
