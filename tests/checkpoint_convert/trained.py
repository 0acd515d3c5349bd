"""A small trained model in memory: what readers would hand over."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from checkpoint_convert.model import Contents, OptimizerContents, ParamGroup, SourceFormat
from tests.checkpoint_convert.memory_source import MemorySource, sources


class Net(nn.Module):
    """Odd shapes, a tied pair, a bf16 buffer, an integer buffer, a frozen parameter, an empty one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 7)
        self.up = nn.Linear(7, 13)
        self.down = nn.Linear(13, 7, bias=False)
        self.head = nn.Linear(7, 50, bias=False)
        self.head.weight = self.embedding.weight
        self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)
        self.register_buffer("table", torch.randn(2, 3, 4).bfloat16())
        self.register_buffer("count", torch.tensor(5))
        self.register_buffer("empty", torch.empty(0, 4))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.down(torch.relu(self.up(self.embedding(tokens)))))


def trained() -> tuple[Net, torch.optim.AdamW]:
    """The model and its optimizer after two steps."""
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    optimizer.param_groups[0].setdefault("decoupled_weight_decay", True)  # torch has it since 2.7
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.arange(20)).square().mean().backward()
        optimizer.step()
    return net, optimizer


def contents_of(net: Net, optimizer: torch.optim.AdamW, block_bytes: int = 64) -> Contents:
    """As a reader hands it over: `head.weight` is an alias, the optimizer is by name."""
    names = [name for name, _ in net.named_parameters()]
    packed = optimizer.state_dict()
    state = {
        names[number]: {key: MemorySource(value, block_bytes) for key, value in entry.items()}
        for number, entry in packed["state"].items()
    }
    options = {key: value for key, value in packed["param_groups"][0].items() if key != "params"}
    weights = net.state_dict()
    del weights["head.weight"]
    return Contents(
        format=SourceFormat.FULL,
        model=sources(weights, block_bytes),
        optimizer=OptimizerContents(state, [ParamGroup(tuple(names), options)]),
        extras={"epoch": 3, "scheduler": {"last_epoch": 2, "base_lrs": [0.01]}},
        aliases={"head.weight": "embedding.weight"},
    )


def trained_contents(**changes: object) -> Contents:
    """`contents_of` a trained model, with fields replaced."""
    return replace(contents_of(*trained()), **changes)
