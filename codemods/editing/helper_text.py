"""The text of the helper module's parts; `codemods.editing.helpers` chooses and joins them.

What the functions do is what FSDP1 did (torch 2.6 to 2.13: `torch.distributed.fsdp._init_utils`, `._wrap_utils`,
`.wrap`), written anew on `fully_shard`. `{name}` marks are filled in by `codemods.editing.helpers`.
"""

from __future__ import annotations

HEADER = '''\
"""Shard a model with FSDP2 (`fully_shard`) where strategy, units and precision are chosen at run time.

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

CPU_OFFLOAD = '''\
@dataclass(frozen=True)
class CPUOffload:
    """Whether parameters, gradients and optimizer state live on the CPU between uses."""

    offload_params: bool = False
'''

BACKWARD_PREFETCH = '''\
class BackwardPrefetch(enum.Enum):
    """A choice FSDP1 offered. FSDP2 always gathers the next unit's parameters before the gradients are computed."""

    BACKWARD_PRE = enum.auto()
    BACKWARD_POST = enum.auto()
'''

TRANSFORMER_POLICY = '''\
def transformer_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    nonwrapped_numel: int,
    transformer_layer_cls: Iterable[type[nn.Module]],
) -> bool:
    """Modules of the given classes are units."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))
'''

LAMBDA_POLICY = '''\
def lambda_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    nonwrapped_numel: int,
    lambda_fn: Callable[[nn.Module], bool],
) -> bool:
    """Modules for which `lambda_fn` is true are units."""
    return recurse or bool(lambda_fn(module))
'''

ALWAYS_POLICY = '''\
def always_wrap_policy(*args: object, **kwargs: object) -> bool:
    """Every module is a unit, save the containers, which have no `forward` to shard around."""
    module = kwargs.get("module", args[0] if args else None)
    return bool(kwargs.get("recurse")) or not isinstance(module, (nn.ModuleList, nn.ModuleDict))
'''

SIZE_POLICY = '''\
def size_based_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[nn.Module]] | None = None,
    exclude_wrap_modules: set[type[nn.Module]] | None = None,
) -> bool:
    """Modules with at least `min_num_params` parameters that are in no unit yet are units."""
    leaves = force_leaf_modules if force_leaf_modules is not None else {nn.MultiheadAttention}
    excluded = exclude_wrap_modules if exclude_wrap_modules is not None else {nn.ModuleList, nn.ModuleDict}
    return nonwrapped_numel >= min_num_params and not isinstance(module, tuple(leaves if recurse else excluded))
'''

OR_POLICY = '''\
def or_policy(module: nn.Module, recurse: bool, nonwrapped_numel: int, policies: Iterable[WrapPolicy]) -> bool:
    """Modules that are units by any of the policies."""
    return any(policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies)
'''

MODULE_POLICY = '''\
class ModuleWrapPolicy:
    """Modules of the given classes are units."""

    def __init__(self, module_classes: Iterable[type[nn.Module]]) -> None:
        self.module_classes = tuple(module_classes)

    def __call__(self, module: nn.Module, recurse: bool, nonwrapped_numel: int = -1) -> bool:
        return recurse or isinstance(module, self.module_classes)
'''

FIND_UNITS = '''\
def find_units(model: nn.Module, policy: WrapPolicy{ignored_parameter}) -> list[nn.Module]:
    """Submodules that become units of their own, children before parents.

    The policy is asked twice about a module: whether to look inside, and, given how many of its parameters are
    in no unit yet, whether it is a unit itself.
    """
    units: list[nn.Module] = []
    seen: set[nn.Module] = {seen}

    def visit(module: nn.Module) -> int:
        """Number of the module's parameters that ended up in units."""
        seen.add(module)
        numel = sum(p.numel() for p in module.parameters(){ignored_filter})
        if not policy(module=module, recurse=True, nonwrapped_numel=numel):
            return 0
        in_units = sum(visit(child) for child in module.children() if child not in seen)
        if module is not model and policy(module=module, recurse=False, nonwrapped_numel=numel - in_units):
            units.append(module)
            return numel
        return in_units

    visit(model)
    return units
'''

TRAINING_DEVICE = '''\
def training_device(device_id: int | torch.device | None) -> torch.device:
    """The device to train on; an accelerator is made the current one, because that is where `fully_shard` puts things."""
    if isinstance(device_id, torch.device):
        device = device_id
    elif not torch.accelerator.is_available():
        return torch.device("cpu")
    else:
        index = torch.accelerator.current_device_index() if device_id is None else device_id
        device = torch.device(torch.accelerator.current_accelerator().type, index)
    if device.type != "cpu" and device.index is not None:
        torch.accelerator.set_device_index(device.index)
    return device
'''

MATERIALIZE = '''\
def materialize(unit: nn.Module, init: Callable[[nn.Module], None] | None, device: torch.device) -> None:
    """Give the meta tensors of a unit storage and values, parents before children; units within it are done already."""
    if not any(t.is_meta for t in (*unit.parameters(), *unit.buffers())):
        return
    queue = deque([unit])
    while queue:
        module = queue.popleft()
        queue.extend(child for child in module.children() if not isinstance(child, FSDPModule))
        if init is not None:
            init(module)
        elif any(True for _ in (*module.parameters(recurse=False), *module.buffers(recurse=False))):
            module.to_empty(device=device, recurse=False)
            with torch.no_grad():
                module.reset_parameters()
'''

BROADCAST = '''\
@torch.no_grad()
def broadcast_from_first_rank(unit: nn.Module, device: torch.device{mesh_parameter}) -> None:
    """Give every rank the first rank's parameters and buffers; what is sharded already was broadcast before."""
    for tensor in (*unit.parameters(), *unit.buffers()):
        if not isinstance(tensor, DTensor):
            tensor.data = tensor.data.to(device)
{broadcast}
'''

CAST_BUFFERS = '''\
def cast_buffers(model: nn.Module, dtype: torch.dtype{keep_parameter}) -> None:
    """Floating-point buffers take part in the computation, so they get its dtype."""
    for module in model.modules():
{keep_test}        for buffer in module.buffers(recurse=False):
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(dtype)
'''
