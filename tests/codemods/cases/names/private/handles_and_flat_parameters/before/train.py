from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp._traversal_utils import _get_fsdp_handles


def free(model):
    model = FSDP(model)
    model._handle.reshard(True)
    for handle in _get_fsdp_handles(model):
        handle.flat_param.data.zero_()
