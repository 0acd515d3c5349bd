"""What sharded models get beyond what FSDP1 did for them.

Written by fsdp-migrate; plain PyTorch, yours to edit.
"""

from torch import nn
from torch.distributed.fsdp import FSDPModule


def compile_units(model: nn.Module) -> None:
    """Compile each unit by itself: alike units share one compilation.

    In place, so that parameters keep their names and the hooks of FSDP still run.
    """
    units: list[nn.Module] = [
        m for m in model.modules() if isinstance(m, FSDPModule) and m is not model
    ]
    for unit in units or [model]:
        unit.compile()
