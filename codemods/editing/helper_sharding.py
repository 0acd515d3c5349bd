"""The helper module's `shard_model` and what it calls, for exactly the keywords in use."""

from __future__ import annotations

from dataclasses import dataclass

from codemods.editing import helper_text as part

KEYWORDS = {
    "process_group": "ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None = None",
    "sharding_strategy": "ShardingStrategy | None = None",
    "cpu_offload": "CPUOffload | None = None",
    "auto_wrap_policy": "WrapPolicy | None = None",
    "mixed_precision": "MixedPrecision | None = None",
    "ignored_modules": "Iterable[nn.Module] | None = None",
    "param_init_fn": "Callable[[nn.Module], None] | None = None",
    "device_id": "int | torch.device | None = None",
    "sync_module_states": "bool = False",
    "forward_prefetch": "bool = False",
    "ignored_states": "Iterable[nn.Parameter | nn.Module] | None = None",
    "device_mesh": "DeviceMesh | None = None",
    "is_root": "bool = True",
}
"""Keywords of `shard_model` and their types: FSDP1's names, so that dictionaries of them stay."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What one helper module is to offer.

    Attributes:
        names: functions and types that the repository names.
        keywords: of `shard_model`; `**` for keywords not known until run time.
        fields: of `MixedPrecision`; `batch_norm` where the repository has such layers.
    """

    names: frozenset[str]
    keywords: frozenset[str]
    fields: frozenset[str]

    def has(self, *keywords: str) -> bool:
        """Whether `shard_model` takes one of these keywords."""
        unknown = "**" in self.keywords
        return any(k in self.keywords or (unknown and k != "is_root") for k in keywords)

    @property
    def used(self) -> list[str]:
        """Its keywords, in FSDP1's order."""
        return [keyword for keyword in KEYWORDS if self.has(keyword)]

    @property
    def chooses_mesh(self) -> bool:
        """Whether a device, a strategy or a group decides the mesh, rather than `fully_shard` by itself."""
        return self.has("sharding_strategy", "process_group", "device_id")

    @property
    def needs_device(self) -> bool:
        return self.chooses_mesh or self.has("sync_module_states", "param_init_fn")

    @property
    def ignores(self) -> bool:
        return self.has("ignored_modules", "ignored_states")

    @property
    def keeps_precision(self) -> bool:
        """Whether classes are kept in full precision: FSDP1 did so only with a policy."""
        if not self.has("auto_wrap_policy") or not self.has("mixed_precision"):
            return False
        return bool(self.fields & {"batch_norm", "_module_classes_to_ignore"})

    @property
    def casts_buffers(self) -> bool:
        return "buffer_dtype" in self.fields and self.has("mixed_precision")

    @property
    def names_mesh(self) -> bool:
        """Whether the broadcast goes over the mesh's groups, so that the mesh needs a name."""
        return self.has("sync_module_states") and self.has("process_group", "device_mesh")


def mixed_precision(draft: Draft) -> str:
    """The type that stands for FSDP1's `MixedPrecision`."""
    fields = draft.fields
    buffers = "buffer_dtype" in fields
    what = (
        "Compute, gradient-reduction and buffer dtypes"
        if buffers
        else "Compute and gradient-reduction dtypes"
    )
    lines = [
        "@dataclass" if "_mutable" in fields else "@dataclass(frozen=True)",
        "class MixedPrecision:",
        f'    """{what}; `None` keeps the stored dtype."""',
        "",
        "    param_dtype: torch.dtype | None = None",
        "    reduce_dtype: torch.dtype | None = None",
    ]
    lines += ["    buffer_dtype: torch.dtype | None = None"] if buffers else []
    lines += ["    cast_forward_inputs: bool = False"] if "cast_forward_inputs" in fields else []
    lines += ["    cast_root_forward_inputs: bool = True"] if "cast_root_forward_inputs" in fields else []
    if draft.keeps_precision or "_module_classes_to_ignore" in fields:
        lines += [
            "    _module_classes_to_ignore: Sequence[type[nn.Module]] = (",
            "        nn.modules.batchnorm._BatchNorm,",
            "    )",
        ]
    text = "\n".join(lines) + "\n"
    if draft.has("mixed_precision") and "shard_model" in draft.names:
        text += "\n" + part.POLICY_METHOD.replace("{cast}", _cast(fields))
    return text


def _cast(fields: frozenset[str]) -> str:
    """Which inputs are cast: a root's by `cast_root_forward_inputs or cast_forward_inputs`, a unit's by the
    latter."""
    unit, root = "cast_forward_inputs" in fields, "cast_root_forward_inputs" in fields
    if unit and root:
        return "self.cast_forward_inputs\n            or (is_root and self.cast_root_forward_inputs)"
    if unit:
        return "is_root or self.cast_forward_inputs"
    return "is_root and self.cast_root_forward_inputs" if root else "is_root"


def sharding(draft: Draft) -> list[str]:
    """`shard_model` and its functions."""
    parts = []
    if draft.has("auto_wrap_policy"):
        parts.append(_find_units(draft))
    if draft.keeps_precision:
        parts.append(part.FULL_PRECISION)
    if draft.needs_device:
        parts.append(part.TRAINING_DEVICE if draft.has("device_id") else part.DEFAULT_DEVICE)
    if draft.chooses_mesh:
        parts.append(_make_mesh(draft))
    if draft.has("param_init_fn"):
        parts.append(part.MATERIALIZE)
    if draft.has("sync_module_states"):
        parts.append(_broadcast(draft))
    if draft.casts_buffers:
        parts.append(_cast_buffers(draft))
    parts.append(_shard_model(draft))
    return parts


def signature(name: str, parameters: list[str], returned: str) -> str:
    """`def name(...) -> returned:` as a formatter of 88 columns leaves it."""
    line = f"def {name}({', '.join(parameters)}) -> {returned}:"
    if len(line) <= 88:
        return line
    inner = f"    {', '.join(parameters)}"
    if len(inner) <= 88:
        return f"def {name}(\n{inner}\n) -> {returned}:"
    return f"def {name}(\n" + "".join(f"    {p},\n" for p in parameters) + f") -> {returned}:"


def _find_units(draft: Draft) -> str:
    parameters = ["model: nn.Module", "policy: WrapPolicy"]
    which = ""
    if draft.ignores:
        parameters += ["ignored: set[nn.Module]", "parameters: set[nn.Parameter]"]
        which = " if p not in parameters"
    text = part.FIND_UNITS.replace("{signature}", signature("find_units", parameters, "list[nn.Module]"))
    if draft.ignores:
        text = text.replace(
            "numel = sum(p.numel() for p in module.parameters(){which})",
            "counted = (p for p in module.parameters() if p not in parameters)\n"
            "        numel = sum(p.numel() for p in counted)",
        )
    return text.replace("{which}", which).replace("{seen}", "set(ignored)" if draft.ignores else "set()")


def _make_mesh(draft: Draft) -> str:
    parameters = ["device: torch.device"]
    if draft.has("sharding_strategy"):
        parameters.insert(0, "strategy: ShardingStrategy")
    if draft.has("process_group"):
        parameters.append("group: ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None")
    text = signature("make_mesh", parameters, "DeviceMesh") + "\n"
    if draft.has("sharding_strategy"):
        text += '    """1-D mesh, or (replicate, shard): hybrid strategies shard within a node."""\n'
    else:
        text += (
            '    """1-D mesh of every rank."""\n'
            if not draft.has("process_group")
            else ('    """The mesh of a process group, or of every rank."""\n')
        )
    if draft.has("process_group"):
        whole = part.MESH_OF_WHOLE_GROUP if draft.has("sharding_strategy") else ""
        text += part.MESH_OF_GROUPS + part.MESH_OF_GROUP.replace("{whole}", whole)
    return text + (part.MESH_OF_STRATEGY if draft.has("sharding_strategy") else part.PLAIN_MESH)


def _broadcast(draft: Draft) -> str:
    parameters = ["unit: nn.Module", "device: torch.device"]
    lines = ["            dist.broadcast(tensor.detach(), src=0)"]
    if draft.has("process_group", "device_mesh"):
        parameters.append("mesh: DeviceMesh")
        lines = [
            "            for dim in range(mesh.ndim):",
            "                group = mesh.get_group(dim)",
            "                dist.broadcast(tensor.detach(), group=group, group_src=0)",
        ]
    head = signature("broadcast_from_first_rank", parameters, "None")
    return part.BROADCAST.replace("{signature}", head).replace("{broadcast}", "\n".join(lines))


def _cast_buffers(draft: Draft) -> str:
    parameters = "model: nn.Module, dtype: torch.dtype"
    test = ""
    if draft.keeps_precision:
        parameters = "\n    model: nn.Module, dtype: torch.dtype, keep: tuple[type[nn.Module], ...]\n"
        test = "        if isinstance(module, keep):\n            continue\n"
    return part.CAST_BUFFERS.replace("{parameters}", parameters).replace("{keep_test}", test)


def _shard_model(draft: Draft) -> str:
    lines = [f"    {keyword}: {KEYWORDS[keyword]}," for keyword in draft.used]
    lines += ["    **without_effect: object,"] if "**" in draft.keywords else []
    if lines:
        star = ["    *,"] if draft.used else []
        head = "\n".join(["def shard_model(", "    model: nn.Module,", *star, *lines, ") -> nn.Module:"])
    else:
        head = "def shard_model(model: nn.Module) -> nn.Module:"
    body = [f"    {line}" if line else "" for line in [*_docstring(draft), *_body(draft)]]
    return "\n".join([head, *body]) + "\n"


def _docstring(draft: Draft) -> list[str]:
    more = []
    if draft.has("is_root"):
        more += [
            "A part of a model (`is_root=False`) leaves casting the inputs to the model",
            "around it.",
        ]
    if "**" in draft.keywords:
        more += [
            "`use_orig_params`, `limit_all_gathers` and `backward_prefetch` are taken and",
            "have no counterpart in FSDP2.",
        ]
    first = '"""Shard `model` in place, unit by unit and then as a whole, and return it.'
    return [first, "", "Build the optimizer afterwards.", *(["", *more] if more else []), '"""']


def _body(draft: Draft) -> list[str]:
    lines: list[str] = []
    if draft.has("sharding_strategy"):
        lines.append("strategy = sharding_strategy or ShardingStrategy.FULL_SHARD")
    if draft.has("mixed_precision"):
        lines.append("precision = mixed_precision or MixedPrecision()")
    if draft.needs_device:
        lines.append(f"device = training_device({'device_id' if draft.has('device_id') else ''})")
    lines += [*_options(draft), *_ignored(draft), *_units(draft), *_shard(draft)]
    if draft.has("forward_prefetch"):
        lines += [
            "if forward_prefetch:",
            "    parts = [m for m in model.modules() if isinstance(m, FSDPModule)]",
            "    for unit, following in zip(parts, parts[1:]):",
            "        unit.set_modules_to_forward_prefetch([following])",
        ]
    if draft.casts_buffers:
        keep = ", full_precision" if draft.keeps_precision else ""
        lines += ["if precision.buffer_dtype is not None:"]
        lines += [f"    cast_buffers(model, precision.buffer_dtype{keep})"]
    return [*lines, "return model"]


def _options(draft: Draft) -> list[str]:
    lines = ["options: dict[str, Any] = {}"]
    mesh = "device_mesh" if draft.has("device_mesh") else ""
    if draft.chooses_mesh:
        arguments = ["strategy"] if draft.has("sharding_strategy") else []
        arguments += ["device", *(["process_group"] if draft.has("process_group") else [])]
        made = f"make_mesh({', '.join(arguments)})"
        mesh = f"{mesh} or {made}" if mesh else made
        lines = [f'options: dict[str, Any] = {{"mesh": {mesh}}}']
        if draft.names_mesh or len(lines[0]) > 84:
            lines = [f"mesh = {mesh}", 'options: dict[str, Any] = {"mesh": mesh}']
    elif draft.names_mesh:
        lines = [
            "world = (dist.get_world_size(),)",
            "mesh = device_mesh or init_device_mesh(device.type, world)",
            'options: dict[str, Any] = {"mesh": mesh}',
        ]
    elif mesh:
        lines += ["if device_mesh is not None:", '    options["mesh"] = device_mesh']
    if draft.has("sharding_strategy"):
        lines += [
            "if strategy in (",
            "    ShardingStrategy.SHARD_GRAD_OP,",
            "    ShardingStrategy._HYBRID_SHARD_ZERO2,",
            "):",
            '    options["reshard_after_forward"] = False',
        ]
    if draft.has("cpu_offload"):
        lines += ["if cpu_offload is not None and cpu_offload.offload_params:"]
        lines += ['    options["offload_policy"] = CPUOffloadPolicy()']
    return lines


def _ignored(draft: Draft) -> list[str]:
    if not draft.ignores:
        return []
    given = " or ".join(k for k in ("ignored_modules", "ignored_states") if draft.has(k))
    lines = [f"ignored = list({given} or ())"]
    lines.append("modules = {m for i in ignored if isinstance(i, nn.Module) for m in i.modules()}")
    if draft.has("ignored_states"):
        lines.append("parameters = {p for p in ignored if isinstance(p, nn.Parameter)}")
        lines.append("parameters |= {p for m in modules for p in m.parameters()}")
    else:
        lines.append("parameters = {p for m in modules for p in m.parameters()}")
    return [*lines, "if parameters:", '    options["ignored_params"] = parameters  # torch 2.7 and later']


def _units(draft: Draft) -> list[str]:
    if not draft.has("auto_wrap_policy"):
        return []
    more = ", modules, parameters" if draft.ignores else ""
    if not draft.keeps_precision:
        return [
            "units = []",
            "if auto_wrap_policy is not None:",
            f"    units = find_units(model, auto_wrap_policy{more})",
        ]
    return [
        "full_precision = tuple(precision._module_classes_to_ignore)",
        "units = []",
        "if auto_wrap_policy is not None:",
        "    policy = auto_wrap_policy",
        "    if mixed_precision is not None:",
        "        policy = with_full_precision(policy, full_precision)",
        f"    units = find_units(model, policy{more})",
    ]


def _shard(draft: Draft) -> list[str]:
    """The loop over the units and the call on the model; one loop where each needs preparing."""
    steps = []
    if draft.has("param_init_fn"):
        steps.append("materialize({unit}, param_init_fn, device)")
    if draft.has("sync_module_states"):
        mesh = ", mesh" if draft.has("process_group", "device_mesh") else ""
        steps += ["if sync_module_states:", f"    broadcast_from_first_rank({{unit}}, device{mesh})"]
    root = "is_root" if draft.has("is_root") else "True"
    if not draft.has("auto_wrap_policy"):
        return [*(s.format(unit="model") for s in steps), *_fully_shard(draft, "model", root)]
    if not steps:
        inner = _fully_shard(draft, "unit", "False")
        return [
            "for unit in units:",
            *(f"    {s}" for s in inner),
            *_fully_shard(draft, "model", root, whole=True),
        ]
    is_root = "unit is model and is_root" if draft.has("is_root") else "unit is model"
    inner = [*(s.format(unit="unit") for s in steps), *_fully_shard(draft, "unit", is_root)]
    return ["for unit in [*units, model]:", *(f"    {s}" for s in inner)]


def _fully_shard(draft: Draft, name: str, is_root: str, *, whole: bool = False) -> list[str]:
    if not draft.has("mixed_precision"):
        return [f"fully_shard({name}, **options)"]
    policy = f"precision.policy(is_root={is_root})"
    if not draft.keeps_precision or whole or name == "model":
        line = f"fully_shard({name}, mp_policy={policy}, **options)"
        return (
            [line]
            if len(line) <= 80
            else [f"mp_policy = {policy}", f"fully_shard({name}, mp_policy=mp_policy, **options)"]
        )
    return [
        f"mp_policy = {policy}",
        f"if mixed_precision is not None and isinstance({name}, full_precision):",
        "    mp_policy = MixedPrecisionPolicy(",
        "        param_dtype=torch.float32,",
        "        reduce_dtype=torch.float32,",
        "        output_dtype=precision.param_dtype,",
        "    )",
        f"fully_shard({name}, mp_policy=mp_policy, **options)",
    ]
