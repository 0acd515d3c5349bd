try:
    from torch.distributed.fsdp import FSDPModule
except ImportError:
    FSDPModule = None
