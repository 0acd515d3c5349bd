from graveyard import Old
from torch.amp import GradScaler
from fsdp2_sharding import shard_model


def build(model):
    return shard_model(model), Old(GradScaler())


class Plugin:
    def config(self) -> "TorchMixedPrecision":
        from fsdp2_sharding import MixedPrecision

        return MixedPrecision(param_dtype=self.dtype)

    def wrap(self, model):
        return shard_model(model, mixed_precision=self.config())
