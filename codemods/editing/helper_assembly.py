"""Joins the parts of a helper module: only what is used, imports in order."""

from __future__ import annotations

from dataclasses import dataclass

from codemods.editing import helper_text as part
from codemods.editing.helper_training_text import TRAINING_HEADER, TRAINING_PARTS

POLICY_PARTS = {
    "transformer_auto_wrap_policy": part.TRANSFORMER_POLICY,
    "lambda_auto_wrap_policy": part.LAMBDA_POLICY,
    "size_based_auto_wrap_policy": part.SIZE_POLICY,
    "always_wrap_policy": part.ALWAYS_POLICY,
    "or_policy": part.OR_POLICY,
    "ModuleWrapPolicy": part.MODULE_POLICY,
}

_KEYWORDS = {
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
    "ignored_states": "Iterable[nn.Parameter] | Iterable[nn.Module] | None = None",
    "device_mesh": "DeviceMesh | None = None",
    "is_root": "bool = True",
}


@dataclass(frozen=True, slots=True)
class Needs:
    """Which keywords of `shard_model` and which fields of `MixedPrecision` are in use.

    Attributes:
        keywords: `**` stands for keywords that are not known until run time.
        fields: `_mutable` where the repository assigns to fields.
    """

    keywords: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()

    @staticmethod
    def of(marks: frozenset[str]) -> Needs:
        """From a finding's `needs`: keywords by name, fields as `field:<name>`."""
        fields = frozenset(m.removeprefix("field:") for m in marks if m.startswith("field:"))
        return Needs(frozenset(m for m in marks if not m.startswith("field:")), fields)

    def joined(self, other: Needs) -> Needs:
        """What either needs."""
        return Needs(self.keywords | other.keywords, self.fields | other.fields)


@dataclass(slots=True)
class _Draft:
    names: frozenset[str]
    needs: Needs

    def has(self, *keywords: str) -> bool:
        return any(keyword in self.needs.keywords for keyword in keywords)


def assemble(names: frozenset[str], needs: Needs) -> str:
    """The text of a helper module that defines these names, and what they need."""
    if "**" in needs.keywords:
        needs = Needs(needs.keywords | (frozenset(_KEYWORDS) - {"is_root"}), needs.fields)
    draft = _Draft(names, needs)
    parts: list[str] = []
    shards = "shard_model" in names
    types = set(names)
    if shards:
        types |= {t for k, t in _TYPE_OF.items() if k in needs.keywords}
    parts += _types(draft, types)
    body = [POLICY_PARTS[n] for n in POLICY_PARTS if n in names]
    if shards:
        body += _sharding(draft)
    body += [TRAINING_PARTS[n] for n in TRAINING_PARTS if n in names]
    text = "\n\n".join([*parts, *body])
    if "WrapPolicy" in text:
        text = (
            'WrapPolicy = Callable[..., bool]\n"""Called with `module`, `recurse` and `nonwrapped_numel`; see `find_units`."""\n\n\n'
            + text
        )
    header = part.HEADER if set(names) - set(TRAINING_PARTS) else TRAINING_HEADER
    return header + "\n" + _imports(text) + ("\n" if text.startswith("WrapPolicy") else "\n\n") + text


_TYPE_OF = {
    "sharding_strategy": "ShardingStrategy",
    "mixed_precision": "MixedPrecision",
    "cpu_offload": "CPUOffload",
}


def _types(draft: _Draft, types: set[str]) -> list[str]:
    parts = []
    if "ShardingStrategy" in types:
        parts.append(part.SHARDING_STRATEGY)
    if "BackwardPrefetch" in types:
        parts.append(part.BACKWARD_PREFETCH)
    if "CPUOffload" in types:
        parts.append(part.CPU_OFFLOAD)
    if "MixedPrecision" in types:
        parts.append(_mixed_precision(draft))
    return parts


def _exempts(draft: _Draft) -> bool:
    """Whether classes are kept in full precision: FSDP1 did so only with a policy."""
    return (draft.has("auto_wrap_policy") and "batch_norm" in draft.needs.fields) or (
        "_module_classes_to_ignore" in draft.needs.fields
    )


def _mixed_precision(draft: _Draft) -> str:
    fields = draft.needs.fields
    decorator = "@dataclass" if "_mutable" in fields else "@dataclass(frozen=True)"
    buffers = "buffer_dtype" in fields
    what = (
        "Compute, gradient-reduction and buffer dtypes"
        if buffers
        else "Compute and gradient-reduction dtypes"
    )
    lines = [
        decorator,
        "class MixedPrecision:",
        f'    """{what}; `None` keeps the stored dtype."""',
        "",
        "    param_dtype: torch.dtype | None = None",
        "    reduce_dtype: torch.dtype | None = None",
    ]
    if buffers or _positional_tail(fields):
        lines.append("    buffer_dtype: torch.dtype | None = None")
    if "cast_forward_inputs" in fields:
        lines.append("    cast_forward_inputs: bool = False")
    if "cast_root_forward_inputs" in fields:
        lines.append("    cast_root_forward_inputs: bool = True")
    if _exempts(draft):
        lines.append(
            "    _module_classes_to_ignore: Sequence[type[nn.Module]] = (nn.modules.batchnorm._BatchNorm,)"
        )
    if "shard_model" in draft.names:
        lines += ["", *_policy_method(draft)]
    return "\n".join(lines) + "\n"


def _positional_tail(fields: frozenset[str]) -> bool:
    return False


def _policy_method(draft: _Draft) -> list[str]:
    fields = draft.needs.fields
    unit = "self.cast_forward_inputs" if "cast_forward_inputs" in fields else "False"
    root = "self.cast_root_forward_inputs" if "cast_root_forward_inputs" in fields else "True"
    if unit == "False":
        cast = f"is_root and {root}" if root != "True" else "is_root"
    elif root == "True":
        cast = f"is_root or {unit}"
    else:
        cast = f"{unit} or (is_root and {root})"
    return [
        "    def policy(self, *, is_root: bool) -> MixedPrecisionPolicy:",
        '        """Inputs are cast once, at the root, so that units see side inputs in the dtype they were given."""',
        "        return MixedPrecisionPolicy(",
        "            param_dtype=self.param_dtype,",
        "            reduce_dtype=self.reduce_dtype or self.param_dtype,",
        f"            cast_forward_inputs={cast},",
        "        )",
    ]


def _sharding(draft: _Draft) -> list[str]:
    parts = []
    ignores = draft.has("ignored_modules", "ignored_states")
    if draft.has("auto_wrap_policy"):
        parts.append(
            part.FIND_UNITS.replace("{ignored_parameter}", ", ignored: set[nn.Module]" if ignores else "")
            .replace("{ignored_filter}", "")
            .replace("{seen}", "set(ignored)" if ignores else "set()")
        )
    if draft.has("device_id", "sync_module_states", "param_init_fn") or _has_mesh(draft):
        parts.append(part.TRAINING_DEVICE)
    if _has_mesh(draft):
        parts.append(_mesh(draft))
    if draft.has("param_init_fn"):
        parts.append(part.MATERIALIZE)
    if draft.has("sync_module_states"):
        parts.append(_broadcast(draft))
    if "buffer_dtype" in draft.needs.fields and draft.has("mixed_precision"):
        parts.append(_cast_buffers(draft))
    parts.append(_shard_model(draft))
    return parts


def _has_mesh(draft: _Draft) -> bool:
    """Whether the mesh is chosen here rather than by `fully_shard`: a device, a strategy or a group decides it."""
    return draft.has("sharding_strategy", "process_group", "device_id")


def _mesh(draft: _Draft) -> str:
    arguments = ["device: torch.device"]
    if draft.has("sharding_strategy"):
        arguments.insert(0, "strategy: ShardingStrategy")
    if draft.has("process_group"):
        arguments.append("group: ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None")
    lines = [f"def make_mesh({', '.join(arguments)}) -> DeviceMesh:"]
    if draft.has("sharding_strategy"):
        lines.append(
            '    """1-D mesh, or (replicate, shard): one sharding group per node for hybrid strategies, none for NO_SHARD."""'
        )
    else:
        lines.append(
            '    """1-D mesh over every rank."""'
            if not draft.has("process_group")
            else '    """The mesh of a process group, or of every rank."""'
        )
    if draft.has("process_group"):
        lines += [
            "    if isinstance(group, tuple):",
            "        shard, replicate = group",
            "        rows: list[list[int]] = [[] for _ in range(replicate.size())]",
            "        dist.all_gather_object(rows, dist.get_process_group_ranks(shard), group=replicate)",
            "        return DeviceMesh.from_group(",
            '            [replicate, shard], device.type, mesh=rows, mesh_dim_names=("replicate", "shard")',
            "        )",
        ]
    if draft.has("process_group"):
        lines += [
            "    if group is not None:",
        ]
        if draft.has("sharding_strategy"):
            lines += [
                "        if strategy is ShardingStrategy.NO_SHARD:",
                "            ranks = dist.get_process_group_ranks(group)",
                '            return DeviceMesh(device.type, [[r] for r in ranks], mesh_dim_names=("replicate", "shard"))',
            ]
        lines += ['        return DeviceMesh.from_group(group, device.type, mesh_dim_names=("shard",))']
    if not draft.has("sharding_strategy"):
        lines.append(
            '    return init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=("shard",))'
        )
        return "\n".join(lines) + "\n"
    lines += [
        "    world_size = dist.get_world_size()",
        "    if strategy is ShardingStrategy.NO_SHARD:",
        "        shape = (world_size, 1)",
        "    elif strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2):",
        '        per_node = torch.accelerator.device_count() if device.type != "cpu" else 1',
        "        shape = (world_size // per_node, per_node)",
        "    else:",
        '        return init_device_mesh(device.type, (world_size,), mesh_dim_names=("shard",))',
        '    return init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))',
    ]
    return "\n".join(lines) + "\n"


def _broadcast(draft: _Draft) -> str:
    own_groups = draft.has("process_group", "device_mesh")
    if own_groups:
        body = [
            "            for dim in range(mesh.ndim):",
            "                dist.broadcast(tensor.detach(), group=mesh.get_group(dim), group_src=0)",
        ]
    else:
        body = ["            dist.broadcast(tensor.detach(), src=0)"]
    return part.BROADCAST.replace("{mesh_parameter}", ", mesh: DeviceMesh" if own_groups else "").replace(
        "{broadcast}", "\n".join(body)
    )


def _cast_buffers(draft: _Draft) -> str:
    exempt = _exempts(draft)
    return part.CAST_BUFFERS.replace(
        "{keep_parameter}", ", keep: tuple[type[nn.Module], ...]" if exempt else ""
    ).replace("{keep_test}", "        if isinstance(module, keep):\n            continue\n" if exempt else "")


def _shard_model(draft: _Draft) -> str:
    has = draft.has
    lines = ["def shard_model(", "    model: nn.Module,"]
    used = [k for k in _KEYWORDS if k in draft.needs.keywords]
    if used:
        lines.append("    *,")
    lines += [f"    {k}: {_KEYWORDS[k]}," for k in used]
    if has("**"):
        lines.append("    **without_effect: object,")
    lines.append(") -> nn.Module:")
    lines += _docstring(draft)
    lines += [f"    {line}" if line else "" for line in _body(draft)]
    return "\n".join(lines) + "\n"


def _docstring(draft: _Draft) -> list[str]:
    first = '    """Shard `model` in place, unit by unit and then as a whole, and return it; build the optimizer afterwards.'
    more = []
    if draft.has("is_root"):
        more.append(
            "    Submodules sharded by themselves (`is_root=False`) leave casting the inputs to the model around them."
        )
    if draft.has("**"):
        more.append(
            "    `use_orig_params`, `limit_all_gathers` and `backward_prefetch` are taken and have no counterpart in FSDP2."
        )
    if not more:
        return [first + '"""']
    return [first, "", *more, '    """']


def _body(draft: _Draft) -> list[str]:
    has = draft.has
    lines: list[str] = []
    strategy = has("sharding_strategy")
    if strategy:
        lines.append("strategy = sharding_strategy or ShardingStrategy.FULL_SHARD")
    if has("mixed_precision"):
        lines.append("precision = mixed_precision or MixedPrecision()")
    needs_device = has("device_id", "sync_module_states", "param_init_fn") or _has_mesh(draft)
    if needs_device:
        lines.append(f"device = training_device({'device_id' if has('device_id') else 'None'})")
    lines += _options(draft)
    lines += _ignored(draft)
    lines += _unit_loop(draft)
    if has("forward_prefetch"):
        lines += [
            "if forward_prefetch:",
            "    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]",
            "    for unit, following in zip(sharded, sharded[1:]):",
            "        unit.set_modules_to_forward_prefetch([following])",
        ]
    if "buffer_dtype" in draft.needs.fields and has("mixed_precision"):
        keep = ", tuple(precision._module_classes_to_ignore)" if _exempts(draft) else ""
        lines += [
            "if precision.buffer_dtype is not None:",
            f"    cast_buffers(model, precision.buffer_dtype{keep})",
        ]
    lines.append("return model")
    return lines


def _options(draft: _Draft) -> list[str]:
    has = draft.has
    lines = ["options: dict[str, Any] = {}"]
    if _has_mesh(draft):
        arguments = ["strategy"] if has("sharding_strategy") else []
        arguments.append("device")
        if has("process_group"):
            arguments.append("process_group")
        make = f"make_mesh({', '.join(arguments)})"
        mesh = f"device_mesh or {make}" if has("device_mesh") else make
        lines = (
            [f"mesh = {mesh}", 'options: dict[str, Any] = {"mesh": mesh}']
            if _names_mesh(draft)
            else [f'options: dict[str, Any] = {{"mesh": {mesh}}}']
        )
    elif has("device_mesh"):
        lines += ["if device_mesh is not None:", '    options["mesh"] = device_mesh']
        if _names_mesh(draft):
            lines = [
                "mesh = device_mesh or init_device_mesh(device.type, (dist.get_world_size(),))",
                'options: dict[str, Any] = {"mesh": mesh}',
            ]
    if has("sharding_strategy"):
        lines += [
            "if strategy in (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2):",
            '    options["reshard_after_forward"] = False',
        ]
    if has("cpu_offload"):
        lines += ["if cpu_offload is not None and cpu_offload.offload_params:"]
        lines += ['    options["offload_policy"] = CPUOffloadPolicy()']
    return lines


def _names_mesh(draft: _Draft) -> bool:
    return draft.has("sync_module_states") and draft.has("process_group", "device_mesh")


def _ignored(draft: _Draft) -> list[str]:
    has = draft.has
    if not has("ignored_modules", "ignored_states"):
        return []
    given = " or ".join(k for k in ("ignored_modules", "ignored_states") if has(k))
    lines = [f"ignored = list({given} or ())"]
    lines += [
        "skipped = {part for m in ignored if isinstance(m, nn.Module) for part in m.modules()}",
        "parameters = {p for m in skipped for p in m.parameters()}",
        "parameters |= {p for p in ignored if isinstance(p, nn.Parameter)}",
        "if parameters:",
        '    options["ignored_params"] = parameters  # torch 2.7 and later',
    ]
    return lines


def _unit_loop(draft: _Draft) -> list[str]:
    has = draft.has
    lines: list[str] = []
    exempt = _exempts(draft) and has("auto_wrap_policy") and has("mixed_precision")
    units = "[]"
    if has("auto_wrap_policy"):
        more = ", skipped" if has("ignored_modules", "ignored_states") else ""
        if exempt:
            lines += [
                "full_precision = tuple(precision._module_classes_to_ignore)",
                "",
                "def is_unit(module: nn.Module, recurse: bool, nonwrapped_numel: int) -> bool:",
                "    if mixed_precision is not None and (recurse or isinstance(module, full_precision)):",
                "        return True",
                "    return auto_wrap_policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel)",
                "",
            ]
        policy = "is_unit" if exempt else "auto_wrap_policy"
        lines.append(f"units = find_units(model, {policy}{more}) if auto_wrap_policy is not None else []")
        units = "units"
    steps = []
    if has("param_init_fn"):
        steps.append("materialize({unit}, param_init_fn, device)")
    if has("sync_module_states"):
        mesh = ", mesh" if has("process_group", "device_mesh") else ""
        steps += ["if sync_module_states:", f"    broadcast_from_first_rank({{unit}}, device{mesh})"]
    root = "is_root" if has("is_root") else "True"
    if steps:
        loop = "for unit in [*units, model]:" if units == "units" else ""
        name = "unit" if loop else "model"
        inner = [s.format(unit=name) for s in steps]
        inner += _fully_shard(
            draft, name, f"unit is model{' and is_root' if has('is_root') else ''}" if loop else root, exempt
        )
        lines += [loop, *(f"    {s}" for s in inner)] if loop else inner
        return lines
    if units == "units":
        lines += ["for unit in units:", *(f"    {s}" for s in _fully_shard(draft, "unit", "False", exempt))]
    lines += _fully_shard(draft, "model", root, False)
    return lines


def _fully_shard(draft: _Draft, name: str, is_root: str, exempt: bool) -> list[str]:
    if not draft.has("mixed_precision"):
        return [f"fully_shard({name}, **options)"]
    policy = f"precision.policy(is_root={is_root})"
    if not exempt:
        return [f"fully_shard({name}, mp_policy={policy}, **options)"]
    return [
        f"policy = {policy}",
        f"if mixed_precision is not None and isinstance({name}, full_precision):",
        "    policy = MixedPrecisionPolicy(",
        "        param_dtype=torch.float32, reduce_dtype=torch.float32, output_dtype=precision.param_dtype",
        "    )",
        f"fully_shard({name}, mp_policy=policy, **options)",
    ]


def _imports(text: str) -> str:
    """Exactly the imports the text uses."""
    plain = [f"import {m}" for m in ("contextlib", "enum", "functools", "math") if f"{m}." in text]
    stdlib = []
    if "deque(" in text:
        stdlib.append("from collections import deque")
    abc = [n for n in ("Callable", "Iterable", "Iterator", "Sequence") if f"{n}[" in text]
    if abc:
        stdlib.append(f"from collections.abc import {', '.join(abc)}")
    if "@dataclass" in text:
        stdlib.append("from dataclasses import dataclass")
    if "Any]" in text or ": Any" in text:
        stdlib.append("from typing import Any")
    third = ["import torch"] if "torch." in text else []
    if "dist." in text:
        third.append("import torch.distributed as dist")
    if "nn." in text:
        third.append("from torch import nn")
    if "ProcessGroup" in text:
        third.append("from torch.distributed import ProcessGroup")
    saving = [n for n in ("StateDictOptions", "set_optimizer_state_dict") if f"{n}(" in text]
    if saving:
        third.append(f"from torch.distributed.checkpoint.state_dict import {', '.join(saving)}")
    mesh = [n for n in ("DeviceMesh", "init_device_mesh") if n in text]
    if mesh:
        third.append(f"from torch.distributed.device_mesh import {', '.join(mesh)}")
    fsdp = [n for n in ("CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy") if n in text]
    fsdp += ["fully_shard"] if "fully_shard(" in text else []
    if fsdp:
        third.append(f"from torch.distributed.fsdp import {', '.join(fsdp)}")
    tensors = [n for n in ("DTensor", "Replicate") if f"{n}." in text or f"{n}(" in text or f", {n})" in text]
    if tensors:
        third.append(f"from torch.distributed.tensor import {', '.join(tensors)}")
    groups = ["\n".join([*plain, *stdlib]), "\n".join(third)]
    return "\n\n".join(g for g in groups if g) + "\n"
