from accelerate import FullyShardedDataParallelPlugin
from torch.distributed.fsdp import MixedPrecisionPolicy

plugin = FullyShardedDataParallelPlugin(
    fsdp_version=2,
    reshard_after_forward=True,
    mixed_precision_policy=MixedPrecisionPolicy(),
)
