"""Works around what keeps FSDP1 from running, or from running right, on a CPU (torch 2.1 to 2.14).

- Without `device_id` FSDP1 looks for an accelerator.
- `sync_module_states=True` refuses CPU tensors (`_init_utils._check_module_states_for_sync_module_states`),
  though the broadcast behind it works.
- Full state dictionaries "offloaded to CPU" alias storage that is freed afterwards: a crash, or corrupt
`exp_avg`.
- Hybrid sharding without a mesh makes groups as large as the number of devices. That is 1 on a CPU, and FSDP1
  then forgets to average gradients (pytorch#154888).
- `CPUOffload(offload_params=True)` pins memory, which needs an accelerator; on a CPU it changes nothing
anyway.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import fsdp
from torch.distributed.fsdp import FullyShardedDataParallel, _init_utils

from fsdp_migrate.verify import cuda_calls

Say = Callable[[str], None]


def apply(say: Say) -> None:
    """Patch FSDP1 in this process.

    Args:
        say: called with one sentence when a workaround is used for the first time or again.
    """
    _constructor(say)
    check = "_check_module_states_for_sync_module_states"
    if hasattr(_init_utils, check):
        setattr(_init_utils, check, lambda _states: None)
    for config in (fsdp.FullStateDictConfig, fsdp.FullOptimStateDictConfig):
        _keep_in_place(config, say)
    _summon(say)
    _optimizer_states(say)
    _devices(say)
    _streams()


def _streams() -> None:
    """Before torch 2.2 `torch.cpu` has no events, nor the streams that FSDP1 asks it for."""
    if hasattr(torch.cpu, "Event"):
        return
    torch.cpu.Stream, torch.cpu.Event = cuda_calls.Stream, cuda_calls.Event  # type: ignore[misc,assignment]
    stream = cuda_calls.Stream()
    torch.cpu.current_stream = lambda _device=None: stream  # type: ignore[assignment,return-value]
    torch.cpu.stream = contextlib.nullcontext  # type: ignore[assignment]


def _devices(say: Say) -> None:
    def device_count() -> int:
        say("torch.cpu.device_count() answers the number of ranks per machine, as with GPUs")
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    torch.cpu.device_count = device_count


def _constructor(say: Say) -> None:
    build = FullyShardedDataParallel.__init__
    signature = inspect.signature(build)

    @functools.wraps(build)
    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:
        call = signature.bind(self, *arguments, **keywords)
        device = call.arguments.get("device_id")
        if device is None or torch.device(device if not isinstance(device, int) else "cuda").type != "cpu":
            say("FSDP1: device_id=torch.device('cpu')")
            call.arguments["device_id"] = torch.device("cpu")
        offload = call.arguments.get("cpu_offload")
        if offload is not None and offload.offload_params:
            say("FSDP1: cpu_offload dropped; parameters are on the CPU already")
            call.arguments["cpu_offload"] = None
        if call.arguments.get("sync_module_states"):
            say("FSDP1: sync_module_states=True allowed for CPU tensors")
        build(*call.args, **call.kwargs)

    FullyShardedDataParallel.__init__ = __init__  # type: ignore[method-assign]


def _keep_in_place(config: Any, say: Say) -> None:
    build = config.__init__
    signature = inspect.signature(build)

    @functools.wraps(build)
    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:
        call = signature.bind(self, *arguments, **keywords)
        # FSDP1 itself makes one with defaults for every unit: that is worth no word.
        if call.arguments.get("offload_to_cpu"):
            say(f"FSDP1 {config.__name__}: offload_to_cpu=False")
        call.arguments["offload_to_cpu"] = False
        build(*call.args, **call.kwargs)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if name == "offload_to_cpu" and value:  # Accelerate sets it before each checkpoint
            say(f"FSDP1 {config.__name__}: offload_to_cpu=False")
            value = False
        object.__setattr__(self, name, value)

    config.__init__ = __init__
    config.__setattr__ = __setattr__


def _optimizer_states(say: Say) -> None:
    """What every way to the optimizer's state comes to; the older ones take no configuration."""
    original: Any = getattr(FullyShardedDataParallel, "_optim_state_dict_impl", None)
    if original is None:
        return
    signature = inspect.signature(original)

    @functools.wraps(original)
    def in_place(*arguments: Any, **keywords: Any) -> Any:
        call = signature.bind(*arguments, **keywords)
        call.apply_defaults()
        if call.arguments.get("cpu_offload"):
            say("FSDP1 optimizer state: gathered without offloading to the CPU")
            call.arguments["cpu_offload"] = False
        return original(*call.args, **call.kwargs)

    FullyShardedDataParallel._optim_state_dict_impl = staticmethod(in_place)  # type: ignore[method-assign]


def _summon(say: Say) -> None:
    original: Any = FullyShardedDataParallel.summon_full_params

    def summon_full_params(*arguments: Any, **keywords: Any) -> Any:
        if keywords.get("offload_to_cpu"):
            say("FSDP1 summon_full_params: offload_to_cpu=False")
            keywords["offload_to_cpu"] = False
        return original(*arguments, **keywords)

    FullyShardedDataParallel.summon_full_params = staticmethod(summon_full_params)  # type: ignore[method-assign]
