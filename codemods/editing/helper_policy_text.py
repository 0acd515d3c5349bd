"""The text of the helper module's parts for policies, which say what of a model is a unit.

What they do is what FSDP1's did (torch 2.6 to 2.13: `torch.distributed.fsdp.wrap`).
"""

from __future__ import annotations

WRAP_POLICY = '''\
WrapPolicy = Callable[..., bool]
"""Called with `module`, `recurse` and `nonwrapped_numel`; see `find_units`."""
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

CLASSES_POLICY = '''\
def module_wrap_policy(
    module: nn.Module,
    recurse: bool,
    nonwrapped_numel: int,
    module_classes: Iterable[type[nn.Module]],
) -> bool:
    """Modules of the given classes are units."""
    return recurse or isinstance(module, tuple(module_classes))
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
def always_wrap_policy(module: nn.Module, recurse: bool, nonwrapped_numel: int) -> bool:
    """Every module is a unit, save containers, which have no `forward`."""
    return recurse or not isinstance(module, (nn.ModuleList, nn.ModuleDict))
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
    """Modules with at least `min_num_params` parameters in no unit yet are units."""
    if recurse:
        passed_over = force_leaf_modules or {nn.MultiheadAttention}
    else:
        passed_over = exclude_wrap_modules or {nn.ModuleList, nn.ModuleDict}
    return nonwrapped_numel >= min_num_params and not isinstance(
        module, tuple(passed_over)
    )
'''

OR_POLICY = '''\
def or_policy(
    module: nn.Module,
    recurse: bool,
    nonwrapped_numel: int,
    policies: Iterable[WrapPolicy],
) -> bool:
    """Modules that are units by any of the policies."""
    return any(
        policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel)
        for policy in policies
    )
'''

MODULE_POLICY = '''\
class ModuleWrapPolicy:
    """Modules of the given classes are units."""

    def __init__(self, module_classes: Iterable[type[nn.Module]]) -> None:
        self.module_classes = tuple(module_classes)

    def __call__(
        self, module: nn.Module, recurse: bool, nonwrapped_numel: int = -1
    ) -> bool:
        return recurse or isinstance(module, self.module_classes)
'''

CUSTOM_POLICY = '''\
class CustomPolicy:
    """Modules are units where `lambda_fn` is true or gives settings of their own."""

    def __init__(self, lambda_fn: Callable[[nn.Module], bool | dict[str, Any]]) -> None:
        self.lambda_fn = lambda_fn

    def __call__(
        self, module: nn.Module, recurse: bool, nonwrapped_numel: int = -1
    ) -> bool:
        return recurse or bool(self.lambda_fn(module))
'''

OWN_OPTIONS = '''\
def own_options(
    policy: WrapPolicy | None, unit: nn.Module, options: dict[str, Any]
) -> dict[str, Any]:
    """The model's options for a unit, and what a `CustomPolicy` says of it instead."""
    own = policy.lambda_fn(unit) if isinstance(policy, CustomPolicy) else False
    options = dict(options)
    if not isinstance(own, dict):
        return options
{each}    return options
'''

OWN_SETTINGS = {
    "sharding_strategy": """\
    if "sharding_strategy" in own:
        strategy = ShardingStrategy(own["sharding_strategy"])
        options.pop("reshard_after_forward", None)
        if strategy is ShardingStrategy.SHARD_GRAD_OP:
            options["reshard_after_forward"] = False
""",
    "cpu_offload": """\
    if "cpu_offload" in own:
        offload = own["cpu_offload"]
        options.pop("offload_policy", None)
        if offload is not None and offload.offload_params:
            options["offload_policy"] = CPUOffloadPolicy()
""",
    "mixed_precision": """\
    if "mixed_precision" in own:
        precision = own["mixed_precision"] or MixedPrecision()
        options["mp_policy"] = precision.policy(is_root=False)
""",
}
"""Keyword -> what a unit's own value of it changes."""

POLICY_PARTS = {
    "transformer_auto_wrap_policy": TRANSFORMER_POLICY,
    "lambda_auto_wrap_policy": LAMBDA_POLICY,
    "size_based_auto_wrap_policy": SIZE_POLICY,
    "always_wrap_policy": ALWAYS_POLICY,
    "or_policy": OR_POLICY,
    "module_wrap_policy": CLASSES_POLICY,
    "ModuleWrapPolicy": MODULE_POLICY,
    "CustomPolicy": CUSTOM_POLICY,
}
"""Name -> text, in the order of the module."""
