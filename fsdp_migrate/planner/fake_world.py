"""A rank of a world in which nothing is sent and no tensor has memory.

Relies on `torch/testing/_internal/distributed/fake_pg.py` (`FakeStore`, backend "fake"), which answers every
collective at once and leaves what is in its buffers, and on `torch/_subclasses/fake_tensor.py`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from fsdp_migrate.errors import UsageError

OLDEST = (2, 7)
"""The first whose `fully_shard` runs on a CPU, which fake tensors are on here."""


def require_torch() -> None:
    """Look whether this torch has what a plan needs.

    Raises:
        UsageError: it has not.
    """
    version = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
    hint = (
        "Make the plan in an environment with torch 2.7 or later; it needs no GPU: pip install 'torch>=2.7'"
    )
    if version < OLDEST:
        raise UsageError(
            f"plan runs fully_shard on a CPU, and this is torch {torch.__version__}, which cannot", hint=hint
        )
    try:
        from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: F401
        from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"plan needs torch's fake tensors and fake process group, which torch {torch.__version__} keeps "
            f"elsewhere: {error}",
            hint="It is tested with torch 2.13; please report the version it fails with.",
        ) from error


@contextmanager
def fake_group(world: int, rank: int = 0) -> Iterator[None]:
    """Be one of `world` ranks of the fake backend.

    Raises:
        UsageError: this process is in a group already.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise UsageError("plan makes a process group of its own, and there is one already")
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def _fused_attention() -> Iterator[None]:
    """Attention as GPUs compute it: with dropout, torch's CPU kernels keep all scores, and CUDA's do not.

    No function mode: it would not reach into functions of torch that have modes of their own (backward,
    `nn.MultiheadAttention`).
    """
    original = functional.scaled_dot_product_attention

    @functools.wraps(original)
    def attention(
        query: Any,
        key: Any,
        value: Any,
        mask: Any = None,
        dropout_p: float = 0.0,
        *rest: Any,
        **keywords: Any,
    ) -> Any:
        if "attn_mask" in keywords:
            mask = keywords.pop("attn_mask")
        return original(query, key, value, mask, 0.0, *rest, **keywords)

    functional.scaled_dot_product_attention = attention  # type: ignore[assignment]
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Tensors that are made inside have shapes and no memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with warnings.catch_warnings(), FakeTensorMode(), _fused_attention():
        # Of values, devices and data pointers that are not there, and of choices that the plan itself made.
        warnings.simplefilter("ignore")
        yield
