"""Runs a script that names CUDA and NCCL on CPUs with gloo, and says every substitution it makes.

A rehearsal shows that both arms run and compute the same; it says nothing of GPU kernels, memory or speed.
What is
replaced: device arguments, the process group's backend, the device type of meshes and autocast, and those
`torch.cuda` calls that fail without a GPU. `torch.cuda.is_available()` keeps answering False, unless
`--as-gpu` is given.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fsdp_migrate.verify import cuda_calls, device_requests, older_torch, sync_batch_norm

Say = Callable[[str], None]

_TEXT = {".py", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini"}
_TEXT_BYTES = 1 << 20
_WORDS = (b"cuda", b"nccl", b"accelerate", b"transformers", b"lightning")


def names_cuda(tree: Path, arguments: tuple[str, ...]) -> bool:
    """Whether a source or configuration file below `tree`, or an argument, speaks of cuda or nccl, or of a
    library that does.
    """
    if any(word in argument for argument in arguments for word in ("cuda", "nccl")):
        return True
    for folder, _, names in os.walk(tree):
        for name in names:
            path = Path(folder, name)
            if path.suffix in _TEXT and path.is_file() and path.stat().st_size <= _TEXT_BYTES:
                text = path.read_bytes()
                if any(word in text for word in _WORDS):
                    return True
    return False


class OnCpu(TorchFunctionMode):
    """Sends every tensor meant for an accelerator to the CPU.

    Args:
        as_gpu: scripts are told that there is a GPU.
    """

    def __init__(self, say: Say, *, as_gpu: bool = False) -> None:
        super().__init__()
        self.say = say
        self.as_gpu = as_gpu

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace device arguments of `func`."""
        kwargs = kwargs or {}
        if func is Tensor.cuda:
            self.say("tensor.cuda() leaves the tensor on the CPU")
            return _as_moved(args[0])
        if func is Tensor.pin_memory:
            self.say("tensor.pin_memory() does nothing")
            return args[0]
        if func is torch.device and _is_index(args[0] if args else kwargs.get("device")):
            return torch.device("cuda", *args, *kwargs.values())  # a number needs a GPU, a name does not
        if "device" in kwargs:
            kwargs = {**kwargs, "device": self.cpu(kwargs["device"])}
        if kwargs.get("pin_memory"):
            self.say("pin_memory=True dropped")
            kwargs = {**kwargs, "pin_memory": False}
        if func is Tensor.type:
            args = tuple(one.replace("cuda.", "") if isinstance(one, str) else one for one in args)
        if func is Tensor.to:
            args = (args[0], *(self.cpu(one, position == 0) for position, one in enumerate(args[1:])))
            moved = func(*args, **kwargs)
            named = (*args[1:2], *(value for key, value in kwargs.items() if key == "device"))
            is_placed = any(isinstance(one, str | torch.device) for one in named)
            return _as_moved(moved) if is_placed and moved is args[0] else moved
        return func(*args, **kwargs)

    def cpu(self, value: Any, is_device: bool = True) -> Any:
        """`value`, or the CPU when it names an accelerator; a number is one where a device is expected."""
        if (is_device and _is_index(value)) or (isinstance(value, str) and value.startswith("cuda")):
            self.say("device cuda -> cpu")
            return "cpu"
        if isinstance(value, torch.device) and value.type == "cuda":
            self.say("device cuda -> cpu")
            return torch.device("cpu")
        return value


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _as_moved(tensor: Any) -> Any:
    """A tensor as a copy to another device lays it out: without the gaps of a slice, so `.view` takes it."""
    if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.is_contiguous():
        return tensor
    # Only a dense tensor keeps its strides.
    like = torch.empty_like(tensor, device="meta")
    return tensor if like.stride() == tensor.stride() else tensor.contiguous()


def apply(mode: OnCpu) -> None:
    """Patch this process; the mode itself is entered by the caller around the script."""
    _modules(mode)
    _process_groups(mode.say)
    _meshes(mode.say)
    _replicas(mode.say)
    _precision(mode.say)
    _compiled(mode.say)
    sync_batch_norm.apply(mode.say)
    cuda_calls.apply(mode.say, as_gpu=mode.as_gpu)
    device_requests.apply(mode.cpu, mode, mode.say)


def _modules(mode: OnCpu) -> None:
    move = nn.Module.to

    def to(self: nn.Module, *arguments: Any, **keywords: Any) -> Any:
        arguments = tuple(mode.cpu(one, position == 0) for position, one in enumerate(arguments))
        if "device" in keywords:
            keywords["device"] = mode.cpu(keywords["device"])
        return move(self, *arguments, **keywords)

    nn.Module.to = to  # type: ignore[method-assign]


def _process_groups(say: Say) -> None:
    for name in ("init_process_group", "new_group"):
        original = getattr(dist, name)

        @functools.wraps(original)
        def with_gloo(*arguments: Any, original: Any = original, name: str = name, **keywords: Any) -> Any:
            backend = keywords.get(
                "backend", arguments[0] if arguments and name == "init_process_group" else None
            )
            if isinstance(backend, str) and "nccl" in backend:
                say("process group backend nccl -> gloo")
                if "backend" in keywords:
                    keywords["backend"] = "gloo"
                else:
                    arguments = ("gloo", *arguments[1:])
            if keywords.pop("device_id", None) is not None:
                say(f"{name}: device_id dropped")
            return original(*arguments, **keywords)

        setattr(dist, name, with_gloo)


def _meshes(say: Say) -> None:
    device_mesh: Any = older_torch.device_mesh()
    if device_mesh is None:
        return
    original = device_mesh.init_device_mesh

    @functools.wraps(original)
    def init_device_mesh(device_type: str, *arguments: Any, **keywords: Any) -> Any:
        return original(_cpu_type(device_type, say), *arguments, **keywords)

    device_mesh.init_device_mesh = init_device_mesh
    dist.init_device_mesh = init_device_mesh  # type: ignore[attr-defined]
    build = device_mesh.DeviceMesh.__init__

    def __init__(self: Any, device_type: str, *arguments: Any, **keywords: Any) -> None:
        build(self, _cpu_type(device_type, say), *arguments, **keywords)

    device_mesh.DeviceMesh.__init__ = __init__
    from_group = getattr(device_mesh.DeviceMesh, "from_group", None)
    if from_group is None:  # before torch 2.3
        return

    def on_cpu(group: Any, device_type: str, *arguments: Any, **keywords: Any) -> Any:
        return from_group(group, _cpu_type(device_type, say), *arguments, **keywords)

    device_mesh.DeviceMesh.from_group = staticmethod(on_cpu)


def _replicas(say: Say) -> None:
    """DistributedDataParallel wants no numbers of devices where parameters are on a CPU."""
    ddp: Any = nn.parallel.DistributedDataParallel
    build = ddp.__init__
    signature = inspect.signature(build)

    @functools.wraps(build)
    def __init__(*arguments: Any, **keywords: Any) -> None:
        call = signature.bind(*arguments, **keywords)
        for name in ("device_ids", "output_device"):
            if call.arguments.pop(name, None) is not None:
                say(f"DistributedDataParallel: {name} dropped")
        build(*call.args, **call.kwargs)

    ddp.__init__ = __init__


def _cpu_type(device_type: str, say: Say) -> str:
    if device_type == "cuda":
        say("device mesh cuda -> cpu")
        return "cpu"
    return device_type


def _precision(say: Say) -> None:
    autocast = torch.amp.autocast_mode.autocast.__init__

    def __init__(self: Any, device_type: str, dtype: Any = None, *arguments: Any, **keywords: Any) -> None:
        if device_type == "cuda":
            say("autocast cuda -> cpu")
            device_type, wanted = "cpu", dtype or older_torch.cuda_autocast_dtype()
            dtype = older_torch.cpu_autocast_dtype(wanted)
            if dtype is not wanted:
                say(f"autocast in {dtype} and not in {wanted}, which this torch has not on a CPU")
        autocast(self, device_type, dtype, *arguments, **keywords)

    torch.amp.autocast_mode.autocast.__init__ = __init__  # type: ignore[method-assign]
    if not hasattr(torch.amp, "GradScaler"):  # before torch 2.3 there is one for CUDA alone
        _scaler_of_cuda(say)
        return
    scaler = torch.amp.GradScaler.__init__

    def scale(self: Any, device: str = "cuda", *arguments: Any, **keywords: Any) -> None:
        if device == "cuda":
            say("gradient scaler cuda -> cpu")
        scaler(self, "cpu" if device == "cuda" else device, *arguments, **keywords)

    torch.amp.GradScaler.__init__ = scale  # type: ignore[method-assign]


def _compiled(say: Say) -> None:
    """Compiled functions run as they are written.

    Under a `TorchFunctionMode` what dynamo (torch 2.13) goes on with after a graph break may be given other
    values than were computed: `inputs_embeds.device` of transformers' Llama becomes a shape.
    """
    set_stance: Any = getattr(torch.compiler, "set_stance", None)
    if set_stance is None:  # before torch 2.6
        return
    original: Any = torch.compile

    @functools.wraps(original)
    def compile(*arguments: Any, **keywords: Any) -> Any:
        say("torch.compile compiles nothing: what is compiled runs as it is written")
        set_stance("force_eager")  # keeps the wrapper, and so the names of its parameters
        return original(*arguments, **keywords)

    torch.compile = compile


def _scaler_of_cuda(say: Say) -> None:
    """Such a scaler turns itself off where there is no GPU."""
    scaler = torch.cuda.amp.GradScaler.__init__

    @functools.wraps(scaler)
    def off(self: Any, *arguments: Any, **keywords: Any) -> None:
        say(f"torch {torch.__version__} scales no losses on a CPU: the gradient scaler is off")
        scaler(self, *arguments, **keywords)

    torch.cuda.amp.GradScaler.__init__ = off  # type: ignore[method-assign]
