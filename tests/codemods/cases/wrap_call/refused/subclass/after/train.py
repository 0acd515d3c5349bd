import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


# TODO(fsdp-migrate FM106): make it a function that calls fully_shard, and methods of
#   the model for what it added
class Sharded(FSDP):
    def __init__(self, module):
        super().__init__(module, device_id=torch.cuda.current_device())
