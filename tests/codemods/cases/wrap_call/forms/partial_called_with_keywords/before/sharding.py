from functools import partial

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block

fsdp = partial(FullyShardedDataParallel, device_id=torch.device("cpu"))
by_block = partial(fsdp, auto_wrap_policy=ModuleWrapPolicy({Block}))
