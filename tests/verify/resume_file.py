"""A checkpoint that the small projects resume from."""

from __future__ import annotations

from pathlib import Path

import torch


def full_checkpoint(path: Path, *, with_buffers: bool = True) -> None:
    """Model and optimizer of the small project after two steps in one process, with names as keys."""
    sizes = {"embed.weight": (50, 16), "head.weight": (50, 16)}
    for block in range(3):
        sizes |= {f"blocks.{block}.up.weight": (32, 16), f"blocks.{block}.up.bias": (32,)}
        sizes |= {f"blocks.{block}.down.weight": (16, 32), f"blocks.{block}.down.bias": (16,)}
    draw = torch.Generator().manual_seed(7)
    weights = {name: torch.randn(size, generator=draw) / 4 for name, size in sizes.items()}
    optimizer = torch.optim.AdamW(list(weights.values()), lr=1e-2, weight_decay=0.1)
    for _ in range(2):
        for weight in weights.values():
            weight.grad = torch.randn(weight.shape, generator=draw)
        optimizer.step()
    state = {name: optimizer.state[weight] for name, weight in weights.items()}
    groups = [{**optimizer.state_dict()["param_groups"][0], "params": list(weights)}]
    buffers = {"table": torch.linspace(0.9, 1.1, 16 * 8).view(8, 16)}
    torch.save(
        {
            "model": weights | (buffers if with_buffers else {}),
            "optimizer": {"state": state, "param_groups": groups},
        },
        path,
    )
