import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Sharded(FSDP):
    def __init__(self, module):
        super().__init__(module, device_id=torch.cuda.current_device())
