"""The optimizers of a plan, with the implementation that torch takes on a GPU where nothing is said.

Source: `torch/optim/optimizer.py` (`_default_to_fused_or_foreach`): foreach on GPUs, a loop on CPUs. On fake
CPU tensors it has to be asked for; its temporary copies are part of the peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from checkpoint_convert.meta_model import load_name
from fsdp_migrate.errors import UsageError

Make = Callable[[Iterable[nn.Parameter]], Optimizer]

NAMED: dict[str, Make] = {
    "adamw": partial(torch.optim.AdamW, foreach=True),
    "adamw-fused": partial(torch.optim.AdamW, fused=True),
    "adam": partial(torch.optim.Adam, foreach=True),
    "adagrad": partial(torch.optim.Adagrad, foreach=True),
    "rmsprop": partial(torch.optim.RMSprop, foreach=True),
    "sgd": partial(torch.optim.SGD, lr=0.1, foreach=True),
    "sgd-momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=True),
}


def maker(name: str) -> Make:
    """What makes the optimizer from the parameters.

    Raises:
        UsageError: an unknown name.
        LayoutError: `pkg.module:function` cannot be imported.
    """
    if name in NAMED:
        return NAMED[name]
    if ":" in name:
        make: Any = load_name(name, "optimizer")
        if callable(make):
            return make  # type: ignore[no-any-return]
    raise UsageError(
        f"--optimizer {name}: no such optimizer",
        hint=f"{', '.join(NAMED)}, or pkg.module:function, which gets the parameters",
    )
