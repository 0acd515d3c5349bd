from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._traversal_utils import _get_fsdp_handles


def free(model):
    fully_shard(model)
    model.reshard()
    # TODO(fsdp-migrate FM516): do without FSDP1's internals: `FSDPModule` has
    #   `unshard()` and `reshard()`, parameters are DTensors
    for handle in _get_fsdp_handles(model):
        # TODO(fsdp-migrate FM507): there is no flat parameter: each DTensor has its own
        #   name and whole shape, `.to_local()` is this rank's part
        handle.flat_param.data.zero_()


class Watch:
    """Hooks of its own, which FSDP1's name says nothing about."""

    def __init__(self, model):
        self._handles = [layer.register_forward_hook(print) for layer in model.children()]

    def remove(self):
        for handle in self._handles:
            handle.remove()
