"""A model built without memory, by a factory called on torch's meta device, and what a policy wraps of it.

The only module of the converter that imports the user's code, and torch, because the user named it.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.readers.names import clean

if TYPE_CHECKING:
    from torch import nn

_SHOWN = 8
_HINT = "Give a function without arguments that returns the model as the old job built it, before FSDP."


def build_on_meta(factory: str) -> nn.Module:
    """Call `pkg.module:factory`, or build what a Hugging Face `config.json` describes, on the meta device.

    Args:
        factory: the name; or the path of a `config.json`, or of the directory that holds one.

    Raises:
        LayoutError: it cannot be imported or called, or returns no module.
    """
    import torch
    from torch import nn

    make = _of_config(factory) or load_name(factory, "model factory")
    try:
        with torch.device("meta"):
            model = make()
    except Exception as error:  # whatever the user's code raises
        raise LayoutError(
            f"{factory}: calling it on the meta device failed: {type(error).__name__}: {error}", hint=_HINT
        ) from error
    if not isinstance(model, nn.Module):
        raise LayoutError(f"{factory}: returns a {type(model).__name__}, not a module", hint=_HINT)
    return model


def _of_config(path: str) -> Callable[[], object] | None:
    """What builds the model of a `config.json`; None where the path is of no such file.

    Only classes of transformers itself are built: nothing that a checkpoint brings along is run.
    """
    file = Path(path) / "config.json" if Path(path).is_dir() else Path(path)
    if file.suffix != ".json" or not file.is_file():
        return None
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise LayoutError(f"{path}: needs transformers", hint="pip install transformers") from error
    try:
        config = transformers.AutoConfig.from_pretrained(file, trust_remote_code=False)
        (name,) = config.architectures
        kind = getattr(transformers, name)
        if not issubclass(kind, transformers.PreTrainedModel):
            raise TypeError(f"{name} is no model")
    except Exception as error:  # transformers raises what it likes
        raise LayoutError(
            f"{file}: transformers cannot build it: {type(error).__name__}: {error}",
            hint="Give the model with --model pkg.module:factory.",
        ) from error
    return lambda: kind(config)


def load_name(dotted: str, what: str) -> Any:
    """The object behind `pkg.module:name`; modules of the working directory are found too.

    Raises:
        LayoutError: there is none.
    """
    module_name, colon, name = dotted.partition(":")
    if not colon or not module_name or not name:
        raise LayoutError(
            f"{dotted}: a {what} is written pkg.module:name", hint="Put a colon before the name."
        )
    if module_name.endswith(".py"):
        file = Path(module_name).absolute()
        raise LayoutError(
            f"{dotted}: a {what} is written pkg.module:name, as Python imports it, not by its file",
            hint=f"In {file.parent} it is {file.stem}:{name}; from elsewhere set PYTHONPATH to that.",
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except (ImportError, AttributeError) as error:
        raise LayoutError(
            f"{dotted}: {what} cannot be imported: {error}",
            hint="Run the command where the module can be imported, or set PYTHONPATH.",
        ) from error
    owner = f"module {module_name}"
    for part in name.split("."):
        if not hasattr(found, part):
            raise LayoutError(
                f"{dotted}: {what} cannot be imported: {owner} has no {part!r}", hint=_near(found, part)
            )
        found = getattr(found, part)
        owner = part
    return found


def _near(owner: Any, wanted: str) -> str:
    """What of an object's names may have been meant: those spelt alike, else what is defined there."""
    names = [name for name in vars(owner) if not name.startswith("_")] if hasattr(owner, "__dict__") else []
    close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    module = getattr(owner, "__name__", "")
    own = [name for name in names if getattr(getattr(owner, name), "__module__", "") == module]
    more = ", ..." if len(own) > _SHOWN else ""
    return f"Defined there: {', '.join(own[:_SHOWN])}{more}." if own else "Nothing is defined there."


def policy_prefixes(model: nn.Module, policy: Any) -> tuple[str, ...]:
    """FQNs of the modules an `auto_wrap_policy` object or function wraps, the root not among them.

    Source: `torch/distributed/fsdp/wrap.py` (`_recursive_wrap`, `_Policy._run_policy`).
    """
    if hasattr(policy, "_run_policy"):
        chosen = policy._run_policy(model, ignored_modules=set(), root_kwargs={})
        return tuple(clean(path) for path, module in model.named_modules() if path and module in chosen)
    return tuple(map(clean, _recurse(model, policy, "")[1]))


def _recurse(module: nn.Module, policy: Any, path: str) -> tuple[int, Sequence[str]]:
    """Elements wrapped below and including `module`, and the FQNs; children first, as FSDP1 wraps."""
    total = sum(tensor.numel() for tensor in module.parameters())
    if not policy(module=module, recurse=True, nonwrapped_numel=total):
        return 0, []
    wrapped = 0
    found: list[str] = []
    for name, child in module.named_children():
        count, below = _recurse(child, policy, f"{path}.{name}" if path else name)
        wrapped += count
        found += below
    if path and policy(module=module, recurse=False, nonwrapped_numel=total - wrapped):
        return total, [*found, path]
    return wrapped, found
