"""What FSDP1's wrapper did in training and checkpoints, for models sharded with FSDP2.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor


def numbered_optim_state(
    model: nn.Module,
    optim: torch.optim.Optimizer | None,
    state: dict[str, Any] | None,
    *,
    from_rank0: bool = False,
) -> dict[str, Any]:
    """Optimizer state by parameter name as `optim.load_state_dict` takes it.

    Whole tensors, given on every rank or (`from_rank0`) on rank 0 alone, become
    shards. Without an optimizer its groups are the saved ones.
    """
    if from_rank0:
        state = _outline_of_rank0(state)
    if state is None:
        raise ValueError("this rank has no optimizer state to load")
    names = parameter_names(model)
    groups = [
        [parameter for parameter, name in names.items() if name in group["params"]]
        for group in state["param_groups"]
    ]
    if optim is not None:
        groups = [group["params"] for group in optim.param_groups]
    moments: dict[int, Any] = {}
    param_groups: list[dict[str, Any]] = []
    count = 0
    for parameters in groups:
        numbers = list(range(count, count + len(parameters)))
        count += len(parameters)
        for number, parameter in zip(numbers, parameters):
            found = state["state"].get(names[parameter])
            if found is not None:
                moments[number] = {
                    key: _like_parameter(value, parameter, from_rank0)
                    for key, value in found.items()
                }
        own = {names[parameter] for parameter in parameters}
        saved = next(
            group
            for group in state["param_groups"]
            if own.intersection(group["params"]) or not (own or group["params"])
        )
        param_groups.append({**saved, "params": numbers})
    return {"state": moments, "param_groups": param_groups}


def _like_parameter(value: Any, parameter: nn.Parameter, from_rank0: bool) -> Any:
    """A value of a parameter's state, sharded as the parameter is."""
    if not isinstance(value, torch.Tensor):
        return value
    # A value of another shape is such as `step`, which parameters must not share.
    if isinstance(value, DTensor) or value.shape != parameter.shape:
        return value.clone()
    if value.is_meta:
        value = torch.empty_like(value, device=parameter.device)
    value = value.to(parameter.device, copy=True)
    if isinstance(parameter, DTensor):
        return distribute_tensor(value, parameter.device_mesh, parameter.placements)
    if from_rank0:
        dist.broadcast(value, src=0)
    return value


def _outline_of_rank0(state: dict[str, Any] | None) -> dict[str, Any] | None:
    """Rank 0's state; on other ranks its large tensors have shapes and no values."""
    outline: list[Any] = [None]
    if dist.get_rank() == 0 and state is not None:
        light = {
            name: {
                key: value.to("meta")
                if isinstance(value, torch.Tensor) and value.dim()
                else value
                for key, value in values.items()
            }
            for name, values in state["state"].items()
        }
        outline = [{**state, "state": light}]
    dist.broadcast_object_list(outline, src=0)
    return state if dist.get_rank() == 0 else outline[0]


def parameter_names(model: nn.Module) -> dict[nn.Parameter, str]:
    """Parameter -> name, without what checkpointing and compiling add to it."""
    names = {}
    for name, parameter in model.named_parameters():
        for prefix in ("_checkpoint_wrapped_module.", "_orig_mod."):
            name = name.replace(prefix, "")
        names[parameter] = name
    return names
