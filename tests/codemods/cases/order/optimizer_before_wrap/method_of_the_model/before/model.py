import torch
from shapes import Model as Plain


class Model(Plain):
    def configure_optimizers(self, weight_decay, lr):
        named = {name: p for name, p in self.named_parameters()}
        named = {name: p for name, p in named.items() if p.requires_grad}
        decay = [p for name, p in named.items() if p.dim() >= 2]
        no_decay = [p for name, p in named.items() if p.dim() < 2]
        groups = [
            {"params": decay, "weight_decay": weight_decay},
            {"params": no_decay, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=lr)

    def groups(self):
        return [{"params": [p for p in self.parameters() if p.requires_grad]}]
