import torch
from torch.distributed.fsdp import *
from torch.distributed.fsdp.wrap import *

from model import Block


def shard(net):
    return FullyShardedDataParallel(
        net,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        mixed_precision=MixedPrecision(reduce_dtype=torch.float32),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
