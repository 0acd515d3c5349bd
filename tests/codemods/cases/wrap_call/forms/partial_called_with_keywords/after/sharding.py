from functools import partial

import torch

from fsdp2_sharding import ModuleWrapPolicy, shard_model
from model import Block

fsdp = partial(shard_model, device_id=torch.device("cpu"))
by_block = partial(fsdp, auto_wrap_policy=ModuleWrapPolicy({Block}))
