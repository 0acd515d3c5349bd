from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    import torch
    from torch.distributed.fsdp import FSDPModule

    Model = Union[torch.nn.parallel.DistributedDataParallel, FSDPModule]
else:
    Model = None
