from functools import partial

from plugins import register
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

register("wrapper", partial(FSDP, use_orig_params=True))
