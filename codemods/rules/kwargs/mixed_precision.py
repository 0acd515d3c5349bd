"""`mixed_precision`. Source: `torch.distributed.fsdp.api`, `._runtime_utils._root_pre_forward`."""

from __future__ import annotations

import ast
from dataclasses import replace

from codemods.rule import CallValue, Code, Literal, Value, code, finding, options
from codemods.shard_call import (
    Argument,
    Inline,
    Precision,
    Translation,
    keyword,
    local_assignment,
    sibling,
    written_at,
)
from codemods.torch_names import MIXED_PRECISION_FIELDS


@keyword("mixed_precision", {"FM112": "a field of `MixedPrecision` that has no counterpart"})
def mixed_precision(argument: Argument) -> Translation:
    """`mixed_precision=MixedPrecision(...)` becomes `mp_policy=MixedPrecisionPolicy(...)` on every unit and
    the root.

    FSDP1 casts inputs once, at the root; `fully_shard` would cast them at every unit, so units get
    `cast_forward_inputs=False` (or what FSDP1's field said) and the root True. `reduce_dtype` is always
    written, because later torch versions read an absent one differently. `buffer_dtype` has no counterpart:
    floating-point buffers are cast once, after sharding. With a policy, FSDP1 kept BatchNorm in full
    precision as units of their own; so does the helper module. `keep_low_precision_grads=True` has no
    counterpart.

    FSDP1 gave buffers their first dtype back in what it saved, so FM112 says where a state dict can hold
    buffers of another dtype now; loading takes either.
    """
    translation = _translation(argument)
    if not _casts_saved_buffers(argument):
        return translation
    note = finding(
        argument.module,
        argument.node,
        "FM112",
        "buffers are saved in `buffer_dtype` now; FSDP1 saved them in the dtype that they had before",
        remedy="where other programs read the files, cast the buffers of the state dict before saving",
        is_note=True,
    )
    return replace(translation, findings=(*translation.findings, note))


def _casts_saved_buffers(argument: Argument) -> bool:
    """Whether a `buffer_dtype` can be chosen and a class of the project has a buffer that is saved."""
    chosen = (field_values(value) for value in options(argument.value))
    if all(fields is None or _is_none(fields.get("buffer_dtype")) for fields in chosen):
        return False
    for module in argument.project.reading("register_buffer"):
        for call in module.called("register_buffer"):
            if isinstance(call.func, ast.Attribute):
                told = call.args[2:] + [k.value for k in call.keywords if k.arg == "persistent"]
                if not any(isinstance(node, ast.Constant) and node.value is False for node in told):
                    return True
    return False


def _translation(argument: Argument) -> Translation:
    value = argument.value
    if isinstance(value, Literal) and value.value is None:
        return Translation(inline=Inline(), keep=False)
    fields = field_values(value)
    if fields is None:
        return Translation(inline=None)
    assignment = local_assignment(argument.module, argument.node)
    visible = argument.at_call and (isinstance(argument.node, ast.Call) or assignment is not None)
    kept_whole = (
        sibling(argument, "auto_wrap_policy") is not None and "batch_norm" in argument.project.mentions
    )
    unusual = set(fields) - {
        "param_dtype",
        "reduce_dtype",
        "buffer_dtype",
        "cast_forward_inputs",
        "cast_root_forward_inputs",
    }
    casts = [
        _boolean(fields.get(n), d)
        for n, d in (("cast_forward_inputs", False), ("cast_root_forward_inputs", True))
    ]
    if not visible or kept_whole or unusual or None in casts:
        return Translation(inline=None)
    texts = {
        n: written_at(argument.project, argument.site, value.origin.module, e) for n, e in fields.items()
    }
    if any(text is None for text in texts.values()):
        return Translation(inline=None)
    dtypes = {
        n: t
        for n in ("param_dtype", "reduce_dtype")
        if (t := texts.get(n)) is not None and not _is_none(fields[n])
    }
    if "param_dtype" in dtypes and "reduce_dtype" not in dtypes:
        dtypes["reduce_dtype"] = dtypes["param_dtype"]
    unit, root = bool(casts[0]), bool(casts[0]) or bool(casts[1])
    buffer = texts.get("buffer_dtype") if not _is_none(fields.get("buffer_dtype")) else None
    return Translation(
        inline=Inline(
            precision=Precision(dtypes, unit, root),
            after=_cast_buffers(buffer) if buffer is not None else (),
            consumed=(assignment,) if assignment else (),
        )
    )


def field_values(value: Value) -> dict[str, ast.expr] | None:
    """Fields given to a `MixedPrecision(...)` call, by name; None where it is no such call or not all are
    known."""
    if not isinstance(value, CallValue) or value.function.name != "torch.distributed.fsdp.MixedPrecision":
        return None
    if value.spreads or any(isinstance(a, ast.Starred) for a in value.arguments):
        return None
    return {**dict(zip(MIXED_PRECISION_FIELDS, value.arguments, strict=False)), **value.keywords}


def _is_none(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _boolean(node: ast.expr | None, default: bool) -> bool | None:
    if node is None:
        return default
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, bool) else None


def _cast_buffers(dtype: Code) -> tuple[Code, ...]:
    return (
        code(
            None,
            "for buffer in {{model}}.buffers():\n    if buffer.is_floating_point():\n"
            "        buffer.data = buffer.data.to({dtype})",
            dtype=dtype,
        ),
    )
