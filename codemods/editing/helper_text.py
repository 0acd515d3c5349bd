"""The text of the helper module's parts for sharding; `codemods.editing.helper_assembly` chooses and joins
them.

What the functions do is what FSDP1 did (torch 2.6 to 2.13: `torch.distributed.fsdp._init_utils`,
`._wrap_utils`, `.wrap`), written anew on `fully_shard`. `{name}` marks are filled in by
`codemods.editing.helper_sharding`. Lines have at most 88 columns, as formatters leave them.
"""

from __future__ import annotations

HEADER = '''\
"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""
'''

SHARDING_STRATEGY = '''\
class ShardingStrategy(enum.Enum):
    """What FSDP1 called the strategies; the names configuration files use."""

    FULL_SHARD = enum.auto()
    SHARD_GRAD_OP = enum.auto()
    NO_SHARD = enum.auto()
    HYBRID_SHARD = enum.auto()
    _HYBRID_SHARD_ZERO2 = enum.auto()
'''

BY_NAME = '''
    @classmethod
    def _missing_(cls, value: object) -> object:
        """A member of FSDP1's own enum, or of another module like this, by name."""
        return cls.__members__.get(value.name) if isinstance(value, enum.Enum) else None
'''

CPU_OFFLOAD = '''\
@dataclass(frozen=True)
class CPUOffload:
    """Whether parameters, gradients and optimizer state live on the CPU."""

    offload_params: bool = False
'''

BACKWARD_PREFETCH = '''\
class BackwardPrefetch(enum.Enum):
    """When FSDP1 gathered the next parameters; FSDP2 does as BACKWARD_PRE did."""

    BACKWARD_PRE = enum.auto()
    BACKWARD_POST = enum.auto()
'''

FIND_UNITS = '''\
{signature}
    """Submodules that become units of their own, children before parents.

    The policy is asked twice about a module: whether to look inside, and, given how
    many of its parameters are in no unit yet, whether it is a unit itself.
    """
    units: list[nn.Module] = []
    seen: set[nn.Module] = {seen}

    def visit(module: nn.Module) -> int:
        """Number of the module's parameters that ended up in units."""
        seen.add(module)
        numel = sum(p.numel() for p in module.parameters(){which})
        if not policy(module=module, recurse=True, nonwrapped_numel=numel):
            return 0
        in_units = sum(visit(child) for child in module.children() if child not in seen)
        left = numel - in_units
        if module is not model and policy(
            module=module, recurse=False, nonwrapped_numel=left
        ):
            units.append(module)
            return numel
        return in_units

    visit(model)
    return units
'''

FULL_PRECISION = '''\
def with_full_precision(
    policy: WrapPolicy, classes: tuple[type[nn.Module], ...]
) -> WrapPolicy:
    """A policy by which modules of `classes`, kept in full precision, are units too."""

    def is_unit(module: nn.Module, recurse: bool, nonwrapped_numel: int) -> bool:
        if recurse or isinstance(module, classes):
            return True
        return policy(module=module, recurse=False, nonwrapped_numel=nonwrapped_numel)

    return is_unit
'''

TRAINING_DEVICE = '''\
def training_device(device_id: int | torch.device | None) -> torch.device:
    """The device to train on, made the current one: `fully_shard` uses that."""
    if isinstance(device_id, torch.device):
        device = device_id
    elif not torch.accelerator.is_available():
        return torch.device("cpu")
    else:
        index = torch.accelerator.current_device_index()
        device = torch.device(index if device_id is None else device_id)
    if device.type != "cpu" and device.index is not None:
        torch.accelerator.set_device_index(device.index)
    return device
'''

DEFAULT_DEVICE = '''\
def training_device() -> torch.device:
    """The current accelerator, or the CPU where there is none."""
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.device(torch.accelerator.current_device_index())
'''

MATERIALIZE = '''\
def materialize(
    unit: nn.Module, init: Callable[[nn.Module], None] | None, device: torch.device
) -> None:
    """Give a unit's meta tensors storage and values, parents before children.

    Units within it have theirs already.
    """
    modules = [unit]
    for module in modules:
        children = [m for m in module.children() if not isinstance(m, FSDPModule)]
        modules += [child for child in children if child not in modules]
    own = [
        tensor
        for module in modules
        for tensor in (*module._parameters.values(), *module._buffers.values())
        if tensor is not None
    ]
    if not any(tensor.is_meta for tensor in own):
        return
    for module in modules:
        if init is not None:
            init(module)
        elif module._parameters or module._buffers:
            module.to_empty(device=device, recurse=False)
            with torch.no_grad():
                module.reset_parameters()  # type: ignore[operator]
'''

BROADCAST = '''\
@torch.no_grad()
{signature}
    """Give every rank the first rank's parameters and buffers.

    What is sharded already was broadcast before.
    """
    for tensor in (*unit.parameters(), *unit.buffers()):
        if not isinstance(tensor, DTensor):
            tensor.data = tensor.data.to(device)
{broadcast}
'''

CAST_BUFFERS = '''\
def cast_buffers({parameters}) -> None:
    """Floating-point buffers take part in the computation, so they get its dtype."""
    for module in model.modules():
{keep_test}        for buffer in module.buffers(recurse=False):
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(dtype)
'''

MESH_OF_GROUPS = """\
    if isinstance(group, tuple):
        shard, replicate = group
        rows: list[list[int]] = [[] for _ in range(replicate.size())]
        ranks = dist.get_process_group_ranks(shard)
        dist.all_gather_object(rows, ranks, group=replicate)
        return DeviceMesh.from_group(
            [replicate, shard],
            device.type,
            mesh=rows,
            mesh_dim_names=("replicate", "shard"),
        )
"""

MESH_OF_GROUP = """\
    if group is not None:
{whole}        return DeviceMesh.from_group(group, device.type, mesh_dim_names=("shard",))
"""

MESH_OF_WHOLE_GROUP = """\
        if strategy is ShardingStrategy.NO_SHARD:
            column = [[rank] for rank in dist.get_process_group_ranks(group)]
            return DeviceMesh(
                device.type, column, mesh_dim_names=("replicate", "shard")
            )
"""

MESH_OF_STRATEGY = """\
    world_size = dist.get_world_size()
    if strategy is ShardingStrategy.NO_SHARD:
        shape = (world_size, 1)
    elif strategy in (
        ShardingStrategy.HYBRID_SHARD,
        ShardingStrategy._HYBRID_SHARD_ZERO2,
    ):
        per_node = getattr(torch, device.type).device_count()
        shape = (world_size // per_node, per_node)
    else:
        return init_device_mesh(device.type, (world_size,), mesh_dim_names=("shard",))
    return init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))
"""

PLAIN_MESH = """\
    return init_device_mesh(
        device.type, (dist.get_world_size(),), mesh_dim_names=("shard",)
    )
"""

LOW_PRECISION_GRADIENTS = """\
    def __post_init__(self) -> None:
        if self.keep_low_precision_grads:
            raise ValueError("FSDP2 keeps gradients in the parameters' own dtype")
"""

POLICY_METHOD = '''\
    def policy(self, *, is_root: bool) -> MixedPrecisionPolicy:
        """Inputs are cast once, at the root: units get side inputs as they come."""
        return MixedPrecisionPolicy(
            param_dtype=self.param_dtype,
            reduce_dtype=self.reduce_dtype or self.param_dtype,
            cast_forward_inputs={cast},
        )
'''

TAKEN_OUT = '''\
@contextlib.contextmanager
def taken_out(model: nn.Module, parameters: set[nn.Parameter]) -> Iterator[None]:
    """Inside of the block `fully_shard` does not see these parameters.

    It neither shards nor moves them; torch 2.7 has `ignored_params` for that.
    """
    taken = [
        (module, name, parameter)
        for module in model.modules()
        for name, parameter in module._parameters.items()
        if parameter in parameters
    ]
    for module, name, _ in taken:
        module._parameters[name] = None
    try:
        yield
    finally:
        for module, name, parameter in taken:
            module._parameters[name] = parameter
'''

LEAVE_CASTING = '''\
_cast_inputs: WeakKeyDictionary[nn.Module, MixedPrecisionPolicy] = WeakKeyDictionary()
"""Models that nothing is sharded around, and the policies by which they cast inputs."""


def leave_casting_to(model: nn.Module, own: MixedPrecisionPolicy | None) -> None:
    """Parts that were sharded before `model` get their inputs as they come from now on.

    Policies are frozen; these are changed all the same, before the first forward, as
    only now it is known that the parts are no roots.
    """
    for part in model.modules():
        policy = _cast_inputs.pop(part, None)
        if policy is not None:
            object.__setattr__(policy, "cast_forward_inputs", False)
    if own is not None:
        _cast_inputs[model] = own
'''
