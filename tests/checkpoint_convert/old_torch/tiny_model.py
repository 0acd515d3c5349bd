"""The model whose FSDP1 checkpoints stand in this folder. Order and shapes matter; the forward does not."""

import torch
from torch import nn


class Block(nn.Module):
    """Two linear maps, a norm and a persistent buffer; one FSDP1 unit each."""

    def __init__(self, width: int = 7, hidden: int = 10) -> None:
        super().__init__()
        self.a = nn.Linear(width, hidden)
        self.b = nn.Linear(hidden, width, bias=False)
        self.n = nn.LayerNorm(width)
        self.register_buffer("buf", torch.arange(width).float())


class TinyModel(nn.Module):
    """Embedding, three blocks, a free parameter and a head tied to the embedding (root unit)."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(19, 7)
        self.l = nn.ModuleList([Block() for _ in range(3)])
        self.g = nn.Parameter(torch.randn(5))
        self.head = nn.Linear(7, 19, bias=False)
        self.head.weight = self.emb.weight
