from graveyard import Old
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def build(model):
    return FSDP(model), Old(ShardedGradScaler())


class Plugin:
    def config(self) -> "TorchMixedPrecision":
        from torch.distributed.fsdp import MixedPrecision as TorchMixedPrecision

        return TorchMixedPrecision(param_dtype=self.dtype)

    def wrap(self, model):
        return FSDP(model, mixed_precision=self.config())
