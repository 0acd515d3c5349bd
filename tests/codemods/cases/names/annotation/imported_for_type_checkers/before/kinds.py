from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    Model = Union[torch.nn.parallel.DistributedDataParallel, FullyShardedDataParallel]
else:
    Model = None
