"""The text of the helper module's parts for training and saving: what FSDP1's methods did, on FSDP2's
modules.

What the functions do is what FSDP1 did (torch 2.6 to 2.13: `FullyShardedDataParallel.no_sync`,
`.clip_grad_norm_`, `.summon_full_params`, `._state_dict_utils`, `._optim_utils`), written anew on DTensors.
"""

from __future__ import annotations

TRAINING_HEADER = '''\
"""What FSDP1's wrapper did in training and checkpoints, for models sharded with FSDP2.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""
'''

NO_SYNC = '''\
@contextlib.contextmanager
def no_sync(model: FSDPModule) -> Iterator[None]:
    """Gradients of backward passes inside stay on this rank until the next one."""
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)
'''

NO_SYNC_OF_EITHER = '''\
def no_sync_of_either(model: Any) -> contextlib.AbstractContextManager[None]:
    """`no_sync` of a sharded model, or of one in DistributedDataParallel."""
    return no_sync(model) if isinstance(model, FSDPModule) else model.no_sync()
'''

CLIP_GRAD_NORM = '''\
@torch.no_grad()
def clip_grad_norm_(
    parameters: Iterable[nn.Parameter], max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """Clip by the norm of the whole gradient, summed up in float32; return the norm.

    Gradients may be of low precision, on several meshes, or not sharded at all.
    """
    norm_type = float(norm_type)
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.tensor(0.0)
    groups: dict[tuple[object, ...], list[torch.Tensor]] = {}
    for gradient in gradients:
        key: tuple[object, ...] = ()
        if isinstance(gradient, DTensor):
            key = (gradient.device_mesh, gradient.placements)
        groups.setdefault(key, []).append(gradient)
    total = torch.zeros((), device=gradients[0].device)
    for group in groups.values():
        local = [g.to_local() if isinstance(g, DTensor) else g for g in group]
        norms = [
            torch.linalg.vector_norm(g, norm_type, dtype=torch.float32)
            for g in local
            if g.numel()
        ]
        norm = (
            torch.linalg.vector_norm(torch.stack(norms), norm_type)
            if norms
            else torch.zeros_like(total)
        )
        norm = norm if math.isinf(norm_type) else norm**norm_type
        if isinstance(group[0], DTensor):
            for dim, placement in enumerate(group[0].placements):
                # A strided shard is no `is_shard()`.
                if not placement.is_replicate():
                    operation = (
                        dist.ReduceOp.MAX
                        if math.isinf(norm_type)
                        else dist.ReduceOp.SUM
                    )
                    dist.all_reduce(
                        norm, op=operation, group=group[0].device_mesh.get_group(dim)
                    )
        total = torch.maximum(total, norm) if math.isinf(norm_type) else total + norm
    if not math.isinf(norm_type):
        total = total ** (1.0 / norm_type)
    factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for gradient in gradients:
        part = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        part.mul_(factor.to(part.device, part.dtype))
    return total.to(functools.reduce(torch.promote_types, [g.dtype for g in gradients]))
'''

SUMMON_FULL_PARAMS = '''\
@contextlib.contextmanager
def summon_full_params(
    model: nn.Module,
    *,
    recurse: bool = True,
    writeback: bool = True,
    rank0_only: bool = False,
    offload_to_cpu: bool = False,
    with_grads: bool = False,
) -> Iterator[None]:
    """Whole parameters stand in place of the shards; `writeback` keeps changes.

    With `rank0_only` the other ranks keep their shards. Every rank has to enter. A
    model that runs inside gathers its parameters by itself.
    """
    nested = {
        m
        for u in model.modules()
        if u is not model and isinstance(u, FSDPModule)
        for m in u.modules()
    }
    modules = [m for m in model.modules() if recurse or m not in nested]
    units = [m for m in modules if isinstance(m, FSDPModule)]
    for unit in units:
        unit.reshard()
    whole: dict[nn.Parameter, nn.Parameter] = {}
    swapped: list[tuple[nn.Module, str, nn.Parameter]] = []
    for module in modules:
        for name, shard in list(module._parameters.items()):
            if not isinstance(shard, DTensor):
                continue
            if shard not in whole:
                device = "cpu" if offload_to_cpu else shard.device
                full = nn.Parameter(
                    shard.detach().full_tensor().to(device), shard.requires_grad
                )
                if with_grads and shard.grad is not None:
                    full.grad = shard.grad.full_tensor().to(device)
                whole[shard] = full
            is_first = not any(shard.device_mesh.get_coordinate() or ())
            if not rank0_only or is_first:
                swapped.append((module, name, shard))
                module._parameters[name] = whole[shard]
    try:
        yield
    finally:
        for unit in units:
            unit.reshard()
        for module, name, shard in swapped:
            module._parameters[name] = shard
        if writeback and not rank0_only:
            for shard, full in whole.items():
                _write_shard(shard.detach(), full.detach())
                if with_grads and shard.grad is not None and full.grad is not None:
                    _write_shard(shard.grad, full.grad)


def _write_shard(shard: torch.Tensor, full: torch.Tensor) -> None:
    """Copy this rank's part of a whole tensor into its shard."""
    assert isinstance(shard, DTensor)
    mesh = shard.device_mesh
    replicated = DTensor.from_local(
        full.to(shard.device), mesh, [Replicate()] * mesh.ndim
    )
    shard.to_local().copy_(
        replicated.redistribute(placements=shard.placements).to_local()
    )
'''

FULL_TENSORS = '''\
def full_tensors(
    state: dict[str, Any], *, offload_to_cpu: bool = False, rank0_only: bool = False
) -> dict[str, Any]:
    """A state dict with whole tensors in place of shards; every rank has to call.

    `rank0_only` is about the first of the ranks that share the tensors.
    """
    is_first = not dist.is_initialized() or dist.get_rank() == 0

    def whole(value: Any) -> Any:
        nonlocal is_first
        if isinstance(value, dict):
            return {key: whole(item) for key, item in value.items()}
        if isinstance(value, DTensor):
            is_first = not any(value.device_mesh.get_coordinate() or ())
            value = value.full_tensor()
        if rank0_only and not is_first:
            return None
        if offload_to_cpu and isinstance(value, torch.Tensor):
            return value.cpu()
        return value

    full = whole(state)
    return full if is_first or not rank0_only else {}
'''

LOAD_FULL_OPTIMIZER = '''\
def load_full_optimizer(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    *,
    broadcast: bool = False,
) -> None:
    """Load whole optimizer state, from every rank or (`broadcast`) from rank 0."""
    if state:
        # One `step` tensor can be shared by many parameters: each would count it up.
        moments = {
            name: {
                k: v.clone() if isinstance(v, torch.Tensor) else v
                for k, v in values.items()
            }
            for name, values in state["state"].items()
        }
        state = {**state, "state": moments}
    sent = [[{**group, "params": []} for group in (state or {}).get("param_groups", ())]]
    if broadcast:
        dist.broadcast_object_list(sent)
    for group, saved in zip(optimizer.param_groups, sent[0]):
        # torch stops at what only saved groups have: a schedule's `initial_lr`.
        group.update({key: saved[key] for key in saved.keys() - group.keys()})
    for group in optimizer.param_groups:
        # torch makes empty state by a step with zero gradients: 0 / (0 + eps).
        if group.get("eps") == 0:
            group["eps"] = 1.0  # until the state's own is loaded
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=broadcast)
    set_optimizer_state_dict(model, optimizer, state or {}, options=options)
'''

READ_SHARDED_OPTIMIZER = '''\
def read_sharded_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, key: str, reader: StorageReader
) -> dict[str, Any]:
    """A checkpoint's optimizer state under `key`, sharded as the optimizer is."""
    state: dict[str, Any] = {key: get_optimizer_state_dict(model, optimizer)}
    saved = reader.read_metadata().state_dict_metadata
    for number, group in enumerate(state[key]["param_groups"]):
        # What only saved groups have is read too: a schedule's `initial_lr`.
        start = ".".join([key, "param_groups", str(number), ""])
        names = {name[len(start) :] for name in saved if name.startswith(start)}
        group.update(dict.fromkeys(names - group.keys()))
    dcp.load(state, storage_reader=reader)  # type: ignore[attr-defined]
    return state
'''

TRAINING_PARTS = {
    "no_sync": NO_SYNC,
    "no_sync_of_either": NO_SYNC_OF_EITHER,
    "clip_grad_norm_": CLIP_GRAD_NORM,
    "summon_full_params": SUMMON_FULL_PARAMS,
    "full_tensors": FULL_TENSORS,
    "load_full_optimizer": LOAD_FULL_OPTIMIZER,
    "read_sharded_optimizer": READ_SHARDED_OPTIMIZER,
}
