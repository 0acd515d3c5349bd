from typing import TYPE_CHECKING

from fsdp2_sharding import shard_model
from graveyard import Old
from torch.amp import GradScaler

if TYPE_CHECKING:
    from torch.distributed.fsdp import MixedPrecision as TorchMixedPrecision


def build(model):
    return shard_model(model), Old(GradScaler())


class Plugin:
    # TODO(fsdp-migrate FM516): rewrite this by hand for `fully_shard`
    def config(self) -> "TorchMixedPrecision":
        from fsdp2_sharding import MixedPrecision

        return MixedPrecision(param_dtype=self.dtype)

    def wrap(self, model):
        return shard_model(model, mixed_precision=self.config())
