# TODO(fsdp-migrate FM533): use its `FSDP2Strategy` or `prepare_fsdp2`, which have other
#   arguments, and see to what is done with the model as for `fully_shard`
from torchtnt.utils.prepare_module import DDPStrategy, FSDPStrategy, prepare_fsdp


class Unit:
    def __init__(self, module, is_large):
        strategy = FSDPStrategy(use_orig_params=True) if is_large else DDPStrategy()
        self.strategy, self.module = strategy, module


def sharded(module, device):
    return prepare_fsdp(module, device)
