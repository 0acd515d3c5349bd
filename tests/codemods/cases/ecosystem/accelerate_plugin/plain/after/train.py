import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch.distributed.fsdp import MixedPrecisionPolicy

from model import Block


def accelerator() -> Accelerator:
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        state_dict_type="FULL_STATE_DICT",
        transformer_cls_names_to_wrap=[Block.__name__],
        reshard_after_forward=False,
        auto_wrap_policy="transformer_based_wrap",
        mixed_precision_policy=MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        ),
        cpu_offload=True,
        # use_orig_params: for LoRA
    )
    return Accelerator(fsdp_plugin=plugin)
