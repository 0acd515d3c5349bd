"""Parameter names as the model itself calls them: wrappers' prefixes taken out.

Source: `torch/distributed/fsdp/_common_utils.py` (`FSDP_PREFIX`, `clean_tensor_name`), its activation
checkpointing and compile counterparts, and `DistributedDataParallel`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from checkpoint_convert.errors import LayoutError

WRAPPERS = ("_fsdp_wrapped_module", "_fpw_module", "_checkpoint_wrapped_module", "_orig_mod")
_FABRIC = "_forward_module."
_DDP = "module."
FLAT_NAMES = ("_flat_param", "flat_param")

Value = TypeVar("Value")


def clean(name: str) -> str:
    """A name without the parts that wrappers put into it."""
    if not any(wrapper in name for wrapper in WRAPPERS):
        return name
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def ddp_prefix(names: Iterable[str]) -> str:
    """The `module.`, or several, in front of every one of the clean names; "" where there is none."""
    rest, found = list(names), ""
    while rest and all(name.startswith(_DDP) for name in rest):
        found += _DDP
        rest = [name[len(_DDP) :] for name in rest]
    return found


def clean_names(values: Mapping[str, Value], where: str) -> dict[str, Value]:
    """The same values under clean names; what Fabric puts before every name is taken off too.

    Raises:
        LayoutError: two names become one.
    """
    result: dict[str, Value] = {}
    for name, value in values.items():
        short = clean(name)
        if short in result:
            raise LayoutError(
                f"{where}: two entries are named {short} without wrapper prefixes; the second is {name}",
                hint="Remove one of them from the checkpoint.",
            )
        result[short] = value
    while result and all(name.startswith(_FABRIC) for name in result):
        result = {name[len(_FABRIC) :]: value for name, value in result.items()}
    return result


def flat_prefix(name: str) -> str | None:
    """The wrapped module whose flat parameter `name` (clean) is, "" for the root; None for other names."""
    module, _, last = name.rpartition(".")
    return module if last in FLAT_NAMES else None
