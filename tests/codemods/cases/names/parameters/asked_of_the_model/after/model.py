import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 8)
        print(self.size())

    def size(self):
        return sum(p.numel() for p in self.parameters())

    def flops(self):
        return 6 * self.size()

    def groups(self):
        named = {name: p for name, p in self.named_parameters()}
        # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match:
        #   it matched by flattened shapes before
        decay = [p for name, p in named.items() if p.dim() >= 2]
        # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match:
        #   it matched by flattened shapes before
        rest = [p for name, p in named.items() if p.dim() < 2]
        return [{"params": decay}, {"params": rest, "weight_decay": 0.0}]

    def configured(self, lr):
        return torch.optim.AdamW(self.groups(), lr=lr)

    def clip(self, largest):
        # TODO(fsdp-migrate FM302): expect other numbers than before (these are right)
        nn.utils.clip_grad_norm_(self.parameters(), largest)


class Plain(nn.Module):
    def groups(self):
        return [{"params": [p for p in self.parameters() if p.dim() >= 2]}]

    def tall(self):
        return [p for p in self.parameters() if p.dim() >= 2]
