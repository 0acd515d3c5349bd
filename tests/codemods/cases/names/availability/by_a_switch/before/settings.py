import os

USE_FSDP = os.environ.get("USE_FSDP", "1") == "1"

if USE_FSDP:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
else:
    FSDP = None
