"""`FullyShardedDataParallelPlugin(...)` of Accelerate in Python.

Source: accelerate 1.15 `utils/dataclasses.py::FullyShardedDataParallelPlugin.__post_init__`, `utils/fsdp_utils.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.library_calls import plugin_calls
from codemods.configuration.settings import strategy_named
from codemods.editing.code import join
from codemods.rule import (
    CallValue,
    Code,
    DictValue,
    Edit,
    Finding,
    Literal,
    Module,
    Named,
    Opaque,
    Project,
    Safety,
    Sequenced,
    Span,
    Value,
    code,
    delete_argument,
    finding,
    insert_text,
    replace,
    rule,
)

_GONE = (
    "backward_prefetch",
    "limit_all_gathers",
    "use_orig_params",
    "sync_module_states",
    "forward_prefetch",
    "optim_state_dict_config",
)
_TRANSFORMER = "torch.distributed.fsdp.wrap.transformer_auto_wrap_policy"
_NO_FIELD = (
    "buffer_dtype",
    "keep_low_precision_grads",
    "cast_root_forward_inputs",
    "_module_classes_to_ignore",
)


class _Left(Exception):
    """The call cannot be translated: why, and what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


@rule(
    "FullyShardedDataParallelPlugin",
    {
        "FM620": "Accelerate's plugin becomes FSDP2's",
        "FM621": "an argument of Accelerate's plugin that needs a person",
        "FM622": "an argument of Accelerate's plugin whose effect ends",
    },
    order=20,
)
def accelerate_plugin(project: Project) -> Iterator[Finding]:
    """`FullyShardedDataParallelPlugin(...)` becomes the plugin of `fsdp_version=2`, with the same layout and state dicts.

    - `sharding_strategy` becomes `reshard_after_forward=True` or `False`; hybrid sharding (it needs
      `ParallelismConfig(dp_replicate_size=..., dp_shard_size=...)` in `Accelerator(...)`) and NO_SHARD are left to you.
    - `state_dict_type` is written out where it is missing: its default changes from full to sharded.
    - `MixedPrecision` becomes `MixedPrecisionPolicy`, `CPUOffload(offload_params=x)` becomes `x`.
    - A policy made with `transformer_auto_wrap_policy` becomes `"transformer_based_wrap"` with the names of its classes: Accelerate's
      FSDP2 reads no other policy object, and would make one single unit of the model without a word.
    - `backward_prefetch`, `limit_all_gathers`, `use_orig_params`, `sync_module_states` and `forward_prefetch` go.
    """
    for module, call in plugin_calls(project):
        given = {keyword.arg: keyword for keyword in call.keywords if keyword.arg is not None}
        version = given.get("fsdp_version")
        if "state_dict_config" in given:
            message = "`state_dict_config` keeps FSDP1's type: Accelerate reads its fields under FSDP2 too"
            yield finding(module, given["state_dict_config"], "FM622", message, is_note=True)
        if version is not None and not _is_one(version.value):
            continue
        try:
            edits, notes = _translated(project, module, call, given)
        except _Left as left:
            yield finding(module, call, "FM621", left.message, remedy=left.remedy)
            continue
        yield finding(
            module, call, "FM620", "the plugin becomes that of FSDP2", safety=Safety.SAFE, edits=edits
        )
        for keyword, message in notes:
            yield finding(module, keyword, "FM622", message, is_note=True)


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _translated(
    project: Project, module: Module, call: ast.Call, given: dict[str, ast.keyword]
) -> tuple[list[Edit], list[tuple[ast.keyword, str]]]:
    if call.args or len(given) != len(call.keywords):
        raise _Left(
            "the plugin's arguments are not all named here",
            "name them, or set `fsdp_version=2` and `reshard_after_forward=True` (False for SHARD_GRAD_OP) where they are made",
        )
    edits: list[Edit] = []
    added: list[str] = []
    notes: list[tuple[ast.keyword, str]] = []
    _strategy(project, module, given, edits)
    if "state_dict_type" in given:
        _state_dict_type(project, module, given["state_dict_type"], edits)
    else:
        added.append('state_dict_type="FULL_STATE_DICT"')
    _offload(project, module, given, edits)
    _precision(project, module, given, edits, notes)
    _policy(project, module, given, edits, added, notes)
    _dropped(project, module, call, given, edits, notes)
    if "fsdp_version" in given:
        edits.append(replace(module, given["fsdp_version"].value, ("2",)))
    else:
        added.insert(0, "fsdp_version=2")
    if added:
        kept = [k for k in call.keywords if k.arg not in _GONE]
        edits += _added(module, call, kept, added)
    return edits, notes


def _added(module: Module, call: ast.Call, kept: list[ast.keyword], added: list[str]) -> list[Edit]:
    """New arguments, before the first that stays; alone where none does."""
    if not kept:
        start = module.span(call.func).end
        span = module.span(call)
        return [Edit(module.path, Span(start, span.end), (f"({', '.join(added)})",))]
    start = module.span(kept[0]).start
    line = module.text[module.line_start(start) : start]
    separator = f",\n{line}" if not line.strip() else ", "
    return [insert_text(module, kept[0], separator.join(added) + separator)]


def _strategy(project: Project, module: Module, given: dict[str, ast.keyword], edits: list[Edit]) -> None:
    keyword = given.get("sharding_strategy") or given.get("reshard_after_forward")
    if keyword is None:
        return
    value = project.evaluate(module, keyword.value)
    said = _name_of(value)
    strategy = strategy_named(said) if said is not None else None
    if strategy is None:
        raise _Left(
            f"`{keyword.arg}` is decided at run time",
            "set `fsdp_version=2` and `reshard_after_forward=` True for FULL_SHARD, False for SHARD_GRAD_OP",
        )
    if strategy.startswith("HYBRID"):
        raise _Left(
            f"`{strategy}` needs the sizes of a mesh under FSDP2",
            "set `fsdp_version=2`, `reshard_after_forward=` True (False for _HYBRID_SHARD_ZERO2) and give `Accelerator` a "
            "`ParallelismConfig(dp_replicate_size=<machines>, dp_shard_size=<processes of one machine>)`",
        )
    if strategy == "NO_SHARD":
        raise _Left(
            "`NO_SHARD` keeps every parameter whole; Accelerate's FSDP2 has no such layout",
            "leave the plugin out: DDP, Accelerate's default, is the same layout",
        )
    full = strategy == "FULL_SHARD"
    edits.append(replace(module, keyword, code(None, f"reshard_after_forward={full}")))


def _name_of(value: Value) -> str | None:
    """The last part of a name or string: an enum member or its spelling."""
    match value:
        case Literal():
            return str(value.value) if isinstance(value.value, str | int) else None
        case Named():
            return value.symbol.name
        case Opaque():
            text = ast.unparse(value.origin.node)
            return text if "." in text else None
    return None


def _state_dict_type(project: Project, module: Module, keyword: ast.keyword, edits: list[Edit]) -> None:
    said = _name_of(project.evaluate(module, keyword.value))
    kind = said.upper().rpartition(".")[2] if said else ""
    if kind == "LOCAL_STATE_DICT":
        raise _Left(
            "LOCAL_STATE_DICT (flat shards) does not exist under FSDP2",
            'use `state_dict_type="SHARDED_STATE_DICT"`, and convert the checkpoints with `fsdp-migrate convert-ckpt`',
        )
    if kind in ("FULL_STATE_DICT", "SHARDED_STATE_DICT") and not isinstance(keyword.value, ast.Constant):
        edits.append(replace(module, keyword.value, (f'"{kind}"',)))


def _offload(project: Project, module: Module, given: dict[str, ast.keyword], edits: list[Edit]) -> None:
    keyword = given.get("cpu_offload")
    if keyword is None:
        return
    value = project.evaluate(module, keyword.value)
    match value:
        case CallValue() if value.function.name.endswith(".CPUOffload"):
            inner = value.keywords.get("offload_params", value.arguments[0] if value.arguments else None)
            if (
                value.spreads
                or value.origin.module is not module
                or (inner is not None and not _seen(keyword, inner))
            ):
                raise _Left(
                    "`CPUOffload` is made elsewhere",
                    "give `cpu_offload` a boolean, and set `fsdp_version=2`",
                )
            new: Code = ("False",) if inner is None else code(module, "{inner}", inner=inner)
            edits.append(replace(module, keyword.value, new))
        case Literal():
            return
        case _:
            raise _Left("`cpu_offload` is decided elsewhere", "give it a boolean, and set `fsdp_version=2`")


def _seen(keyword: ast.keyword, node: ast.AST) -> bool:
    """Whether a node stands within the argument."""
    return any(child is node for child in ast.walk(keyword.value))


def _precision(
    project: Project,
    module: Module,
    given: dict[str, ast.keyword],
    edits: list[Edit],
    notes: list[tuple[ast.keyword, str]],
) -> None:
    keyword = given.get("mixed_precision_policy")
    if keyword is None:
        return
    value = project.evaluate(module, keyword.value)
    if isinstance(value, Literal):
        return  # a string such as "bf16", or None: the same under both versions
    if isinstance(value, DictValue) or not (
        isinstance(value, CallValue) and value.function.name.endswith(".MixedPrecision")
    ):
        raise _Left(
            "`mixed_precision_policy` is no `MixedPrecision(...)` that can be seen",
            "give it a `MixedPrecisionPolicy` with the same param_dtype and reduce_dtype, and set `fsdp_version=2`",
        )
    if not _seen(keyword, value.origin.node) or value.arguments or value.spreads:
        raise _Left(
            "`MixedPrecision` is made elsewhere, or with unnamed arguments",
            "make a `MixedPrecisionPolicy` with the same param_dtype and reduce_dtype of it, and set `fsdp_version=2`",
        )
    parts = []
    for name, node in value.keywords.items():
        if name in _NO_FIELD:
            notes.append(
                (keyword, f"`{name}` has no counterpart: FSDP2 leaves buffers and gradients in their dtype")
            )
        else:
            parts.append(code(module, f"{name}={{value}}", value=node))
    policy = code(None, "{torch.distributed.fsdp.MixedPrecisionPolicy}")
    new: Code = (*policy, "(", *join(parts, ", "), ")")
    edits.append(replace(module, keyword.value, new))


def _policy(
    project: Project,
    module: Module,
    given: dict[str, ast.keyword],
    edits: list[Edit],
    added: list[str],
    notes: list[tuple[ast.keyword, str]],
) -> None:
    keyword = given.get("auto_wrap_policy")
    if keyword is None:
        return
    value = project.evaluate(module, keyword.value)
    if isinstance(value, Literal):
        if str(value.value).upper() == "SIZE_BASED_WRAP":
            notes.append(
                (keyword, "units chosen by size differ under FSDP2: all parameters of a module count")
            )
        return
    names = _layer_classes(project, module, value)
    if names is None:
        raise _Left(
            "Accelerate's FSDP2 does not read this policy: the whole model would be one unit",
            'use `auto_wrap_policy="transformer_based_wrap"` and `transformer_cls_names_to_wrap=[...]`, and `fsdp_version=2`',
        )
    edits.append(replace(module, keyword.value, ('"transformer_based_wrap"',)))
    if names and "transformer_cls_names_to_wrap" not in given:
        added.append(f"transformer_cls_names_to_wrap=[{', '.join(names)}]")


def _layer_classes(project: Project, module: Module, value: Value) -> list[str] | None:
    """The classes of `partial(transformer_auto_wrap_policy, transformer_layer_cls={...})`, as code; None for other policies."""
    if isinstance(value, Named) and value.symbol.name == _TRANSFORMER:
        return []
    if not isinstance(value, CallValue) or value.function.name != "functools.partial" or not value.arguments:
        return None
    made_of = project.resolve(value.origin.module, value.arguments[0])
    classes = value.keywords.get("transformer_layer_cls")
    if (
        made_of is None
        or made_of.name != _TRANSFORMER
        or classes is None
        or value.origin.module is not module
    ):
        return None
    elements = project.evaluate(module, classes)
    if not isinstance(elements, Sequenced) or elements.origin.module is not module:
        return None
    if not all(isinstance(element, ast.Name | ast.Attribute) for element in elements.elements):
        return None
    return [f"{module.code(element)}.__name__" for element in elements.elements]


def _dropped(
    project: Project,
    module: Module,
    call: ast.Call,
    given: dict[str, ast.keyword],
    edits: list[Edit],
    notes: list[tuple[ast.keyword, str]],
) -> None:
    for name in ("param_init_fn",):
        if name in given:
            raise _Left(
                f"`{name}` is not called under FSDP2",
                "build the model with its weights (or on the meta device with `cpu_ram_efficient_loading=True`), and remove it",
            )
    gone = [given[name] for name in _GONE if name in given]
    kept = [k for k in call.keywords if k.arg not in _GONE]
    for keyword in gone:
        if kept:  # otherwise the whole list of arguments is written anew
            edits.append(delete_argument(module, call, keyword))
    ram = given.get("cpu_ram_efficient_loading")
    sync, ram = given.get("sync_module_states"), given.get("cpu_ram_efficient_loading")
    loads_once = ram is not None and _is(ram.value, True)
    if sync is not None and not _is(sync.value, False) and not loads_once:
        message = "rank 0's weights went to all ranks; Accelerate's FSDP2 does that only with `cpu_ram_efficient_loading=True`"
        notes.append((sync, message))
    if "optim_state_dict_config" in given:
        message = "Accelerate's FSDP2 saves optimizers as `state_dict_config` says"
        notes.append((given["optim_state_dict_config"], message))
    if "use_orig_params" in given and _is(given["use_orig_params"].value, False):
        notes.append(
            (given["use_orig_params"], "optimizers now see the original parameters, and their names")
        )


def _is(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
