from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from base import Trainer


class ShardedTrainer(Trainer):
    is_wrapped = True

    def prepared(self, model: nn.Module) -> nn.Module:
        return FSDP(model)

    def clip(self) -> float:
        if self.is_wrapped:
            norm = self.model.clip_grad_norm_(1.0)
            return norm.item()
        return super().clip()

    def step(self) -> float:
        return self.clip() + self.clip_values()
