"""The layout of a model built without memory: a factory called on torch's meta device.

The only module of the converter that imports the user's code, and torch, because the user named it.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.layout import ModelLayout, ModuleSpec, ParameterSpec
from checkpoint_convert.model import BY_TORCH_NAME
from checkpoint_convert.readers.names import WRAPPERS, clean

if TYPE_CHECKING:
    import torch
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


def layout_of(model: nn.Module, origin: str) -> ModelLayout:
    """The layout of a model that FSDP has not touched, under the names it has without other wrappers."""
    parameters: list[ParameterSpec] = []
    tensors: dict[int, int] = {}
    slots: dict[tuple[int, str], int] = {}
    modules, buffers = [], []
    for path, module in own_modules(model):
        modules.append(ModuleSpec(path, class_names(type(module))))
        for name, tensor in own_parameters(module):
            fqn = f"{path}.{name}" if path else name
            number = tensors.setdefault(id(tensor), len(tensors))
            slot = slots.setdefault((id(module), name), len(slots))
            parameters.append(parameter_spec(fqn, tensor, number, slot))
        buffers += persistent_buffers(path, module)
    return ModelLayout(tuple(parameters), tuple(modules), tuple(buffers), origin=origin)


def own_modules(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The model's modules by clean FQN, in pre-order, one reachable by two paths under both; no wrappers.

    Raises:
        LayoutError: a module of the model itself is called as wrappers call what they are around.
    """
    inside = [(name, child) for name, child in module._modules.items() if child is not None]
    called = next((name for name, _ in inside if name in WRAPPERS), None)
    if called is not None and len(inside) == 1 and not own_parameters(module):
        yield from own_modules(inside[0][1], path)
        return
    if called is not None:
        raise LayoutError(
            f"{path or 'the model'} has a module called {called}, as wrappers call what they are around: its "
            "parameters' names cannot be told from names with a wrapper in them",
            hint="Save a full state dict in the old job, rename the module in it and in the model.",
        )
    yield path, module
    for name, child in inside:
        yield from own_modules(child, f"{path}.{name}" if path else name)


def own_parameters(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """A module's own parameters, whatever they are called, without the flat parameter FSDP1 gave it."""
    there = [(name, value) for name, value in module._parameters.items() if value is not None]
    return [(name, value) for name, value in there if not hasattr(value, "_param_infos")]


def parameter_spec(fqn: str, tensor: torch.Tensor, number: int, slot: int) -> ParameterSpec:
    """The spec of one registration."""
    dtype = BY_TORCH_NAME.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None:
        raise LayoutError(
            f"parameter {fqn} is of {tensor.dtype}, which FSDP1 does not flatten",
            hint="Convert it separately, or leave it out of the model.",
        )
    return ParameterSpec(
        fqn, tuple(tensor.shape), tuple(tensor.stride()), dtype, tensor.requires_grad, number, slot
    )


def class_names(kind: type) -> tuple[str, ...]:
    """A class and its bases below `nn.Module`, dotted."""
    return tuple(
        f"{base.__module__}.{base.__qualname__}"
        for base in kind.__mro__
        if base is not object and base.__qualname__ != "Module"
    )


def persistent_buffers(path: str, module: nn.Module) -> list[str]:
    """FQNs of the buffers that a module's own state dict has."""
    left_out: set[str] = getattr(module, "_non_persistent_buffers_set", set())
    return [
        f"{path}.{name}" if path else name
        for name, value in module._buffers.items()
        if value is not None and name not in left_out
    ]


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
