import bitsandbytes as bnb
from torch import nn


class Model(nn.Module):
    def configure_optimizers(self, lr):
        decayed = [p for p in self.parameters() if p.dim() >= 2]
        others = [p for p in self.parameters() if p.dim() < 2]
        optim_groups = [
            {"params": decayed, "weight_decay": 0.1},
            {"params": others, "weight_decay": 0.0},
        ]
        return bnb.optim.AdamW8bit(optim_groups, lr=lr)
