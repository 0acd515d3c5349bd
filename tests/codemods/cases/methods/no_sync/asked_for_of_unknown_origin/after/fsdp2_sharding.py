"""What FSDP1's wrapper did in training and checkpoints, for models sharded with FSDP2.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from torch.distributed.fsdp import FSDPModule


@contextlib.contextmanager
def no_sync(model: FSDPModule) -> Iterator[None]:
    """Gradients of backward passes inside stay on this rank until the next one."""
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


def no_sync_of_either(model: Any) -> contextlib.AbstractContextManager[None]:
    """`no_sync` of a sharded model, or of one in DistributedDataParallel."""
    return no_sync(model) if isinstance(model, FSDPModule) else model.no_sync()
