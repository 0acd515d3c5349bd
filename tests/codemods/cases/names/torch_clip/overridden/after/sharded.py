from torch import nn
from torch.distributed.fsdp import fully_shard

from base import Trainer


class ShardedTrainer(Trainer):
    is_wrapped = True

    def prepared(self, model: nn.Module) -> nn.Module:
        return fully_shard(model)

    def clip(self) -> float:
        if self.is_wrapped:
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).full_tensor()
            return norm.item()
        return super().clip()

    def step(self) -> float:
        return self.clip() + self.clip_values()
