from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp._traversal_utils import _get_fsdp_handles


def free(model):
    model = FSDP(model)
    model._handle.reshard(True)
    for handle in _get_fsdp_handles(model):
        handle.flat_param.data.zero_()


class Watch:
    """Hooks of its own, which FSDP1's name says nothing about."""

    def __init__(self, model):
        self._handles = [layer.register_forward_hook(print) for layer in model.children()]

    def remove(self):
        for handle in self._handles:
            handle.remove()
