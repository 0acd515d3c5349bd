"""The helper module's precision type and the functions that `shard_model` calls."""

from __future__ import annotations

from codemods.editing import helper_text as part
from codemods.editing.helper_body import shard_model
from codemods.editing.helper_draft import Draft
from codemods.editing.helper_policy_text import OWN_OPTIONS, OWN_SETTINGS


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
    if "keep_low_precision_grads" in fields:
        lines += ["    keep_low_precision_grads: bool = False"]
    text = "\n".join(lines) + "\n"
    if "keep_low_precision_grads" in fields:
        text += "\n" + part.LOW_PRECISION_GRADIENTS
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
    if draft.own:
        each = "".join(OWN_SETTINGS[keyword] for keyword in draft.own)
        parts.append(OWN_OPTIONS.replace("{each}", each))
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
    if draft.takes_out:
        parts.append(part.TAKEN_OUT)
    if draft.knows_parts:
        parts.append(part.LEAVE_CASTING)
    parts.append(shard_model(draft))
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
