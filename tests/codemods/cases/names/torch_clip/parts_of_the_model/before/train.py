import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = nn.Linear(4, 4)
        self.text = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))

    def forward(self, x):
        return self.text(self.vision(x))


def train(batches):
    model = FSDP(Captioner(), use_orig_params=True)
    trained = list(model.text.parameters())
    matrices = [p for p in model.text.parameters() if p.ndim >= 2]
    optimizer = torch.optim.AdamW([{"params": matrices}, {"params": model.vision.parameters()}])
    print(sum(p.numel() for p in model.text[0].parameters()))
    for batch in batches:
        model(batch).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.vision.parameters(), 1.0)
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        print(norm.item())
        optimizer.step()


def with_a_frozen_part(batches):
    model = Captioner()
    model = FSDP(model, use_orig_params=True, ignored_modules=[model.vision])
    optimizer = torch.optim.AdamW(model.text.parameters())
    for batch in batches:
        model(batch).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.vision.parameters(), 1.0)
        print(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0).item())
        optimizer.step()
