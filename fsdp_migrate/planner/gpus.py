"""Memory of GPUs by name, as `nvidia-smi` prints it in MiB; what the driver itself takes is in it."""

from __future__ import annotations

import difflib

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.memory_bound import parse_size
from fsdp_migrate.errors import UsageError
from fsdp_migrate.planner.model import Gpu

_MIB = {
    "t4": 15_360,
    "v100-32gb": 32_768,
    "a10": 23_028,
    "a40": 46_068,
    "a100-40gb": 40_960,
    "a100-80gb": 81_920,
    "l4": 23_034,
    "l40s": 46_068,
    "h100-80gb": 81_559,
    "h200": 143_771,
    "b200": 183_359,
    "rtx4090": 24_564,
}


def gpu_of(name: str | None, memory: str | None) -> Gpu | None:
    """What `--gpu` and `--gpu-memory` say; None where neither is given.

    Raises:
        UsageError: both, an unknown name, or no size.
    """
    if name is not None and memory is not None:
        raise UsageError("--gpu and --gpu-memory say the same twice", hint="leave one of them out")
    if memory is not None:
        try:
            return Gpu("", parse_size(memory))
        except UnsupportedError as error:
            raise UsageError(f"--gpu-memory: {error.message}", hint="write it as 80GiB or 79.1GiB") from None
    return None if name is None else _named(name)


def _named(name: str) -> Gpu:
    wanted = name.lower().replace(" ", "-").replace("_", "-").removeprefix("nvidia-")
    longer = [known for known in _MIB if known.startswith(f"{wanted}-")]
    if wanted not in _MIB and len(longer) == 1:
        wanted = longer[0]
    if wanted in _MIB:
        return Gpu(wanted.upper(), _MIB[wanted] << 20)
    close = longer or difflib.get_close_matches(wanted, _MIB, n=3) or list(_MIB)
    raise UsageError(
        f"--gpu {name}: no GPU of that name",
        hint=f"{', '.join(close)}; or its memory: --gpu-memory 80GiB",
    )
