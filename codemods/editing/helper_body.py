"""The text of the helper module's `shard_model`, for exactly the keywords in use."""

from __future__ import annotations

from codemods.editing.helper_draft import KEYWORDS, Draft


def shard_model(draft: Draft) -> str:
    """The whole function."""
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
        lines.append("strategy = ShardingStrategy(sharding_strategy or ShardingStrategy.FULL_SHARD)")
    if draft.has("mixed_precision"):
        lines += [
            "precision = mixed_precision or MixedPrecision()",
            "if not isinstance(precision, MixedPrecision):",
            '    raise TypeError("mixed_precision is not the MixedPrecision of this module")',
        ]
    if draft.needs_device:
        lines.append(f"device = training_device({'device_id' if draft.has('device_id') else ''})")
    lines += [*_options(draft), *_ignored(draft), *_units(draft), *_sharded(draft)]
    if draft.knows_parts:
        can_cast = "cast_forward_inputs" in draft.fields
        lines += (
            [
                "casts_always = precision.cast_forward_inputs",
                "leave_casting_to(model, None if casts_always else mp_policy)",
            ]
            if can_cast
            else ["leave_casting_to(model, mp_policy)"]
        )
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
    if draft.takes_out:
        return lines
    return [*lines, "if parameters:", '    options["ignored_params"] = parameters']


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


def _sharded(draft: Draft) -> list[str]:
    if not draft.takes_out:
        return _shard(draft)
    return ["with taken_out(model, parameters):", *(f"    {line}" for line in _shard(draft))]


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
    inner = [*(s.format(unit="unit") for s in steps), *_fully_shard(draft, "unit", is_root, is_all=True)]
    return ["for unit in [*units, model]:", *(f"    {s}" for s in inner)]


def _fully_shard(
    draft: Draft, name: str, is_root: str, *, whole: bool = False, is_all: bool = False
) -> list[str]:
    """The call on a unit or on the model.

    Args:
        whole: the model, behind a loop over its units.
        is_all: one of the units or, at last, the model.
    """
    if draft.own and name == "unit":
        return _by_own_options(draft, is_root, is_all=is_all)
    return _by_options(draft, name, is_root, whole=whole)


def _by_own_options(draft: Draft, is_root: str, *, is_all: bool) -> list[str]:
    """A unit with what its policy says of it instead of the model's options."""
    lines, given = [], "options"
    if draft.has("mixed_precision"):
        lines, given = (
            [f"mp_policy = precision.policy(is_root={is_root})"],
            '{"mp_policy": mp_policy, **options}',
        )
    if not is_all:
        own = f"own_options(auto_wrap_policy, unit, {given})"
        return [*lines, f"fully_shard(unit, **{own})"]
    return [
        *lines,
        f"own = {given}",
        "if unit is not model:",
        "    own = own_options(auto_wrap_policy, unit, own)",
        "fully_shard(unit, **own)",
    ]


def _by_options(draft: Draft, name: str, is_root: str, *, whole: bool) -> list[str]:
    if not draft.has("mixed_precision"):
        return [f"fully_shard({name}, **options)"]
    policy = f"precision.policy(is_root={is_root})"
    if draft.knows_parts and (whole or name == "model"):
        return [f"mp_policy = {policy}", f"fully_shard({name}, mp_policy=mp_policy, **options)"]
    if not draft.keeps_precision or whole or name == "model":
        line = f"fully_shard({name}, mp_policy={policy}, **options)"
        return (
            [line]
            if len(line) <= 80 and not draft.knows_parts
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
