import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


# TODO(fsdp-migrate FM106): make it a function that calls fully_shard, and what it added
#   methods of the model
class Sharded(FSDP):
    def __init__(self, module):
        super().__init__(module, device_id=torch.cuda.current_device())
