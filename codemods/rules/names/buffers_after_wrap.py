"""Buffers that are made once the model is sharded.

Source: `torch/distributed/fsdp/_runtime_utils.py` (`_lazy_init` casts the buffers that it finds then)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.rule import (
    CallValue,
    Finding,
    Literal,
    Module,
    No,
    Project,
    Value,
    WrapCall,
    finding,
    options,
    rule,
)
from codemods.torch_names import MIXED_PRECISION_FIELDS
from codemods.wrap_site import arguments_of

_NOT_BETWEEN = frozenset({"__init__", "forward", "__call__"})
"""Methods that run before the wrap, or once the first forward pass has begun."""
_FIRST_VALUES = re.compile(r"init|reset|buffer|materiali[sz]e")
"""In the names of methods that give a model its first values: caches that `generate` makes are others."""


@rule("register_buffer", {"FM537": "buffers are made after the model is sharded, and keep their dtype"})
def buffers_after_wrap(project: Project) -> Iterator[Finding]:
    """`model.init_weights()` behind the wrap, where it registers buffers, makes them in a dtype of its own.

    FSDP1 cast buffers to `buffer_dtype` just before the first forward pass, also those that were made between
    the wrap and that pass. The new code casts those that are there at the wrap: a table of cosines that is
    made later stays float32, and what is computed with it becomes float32. Cast again behind the call:

        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(torch.bfloat16)
    """
    sites = [site for site in project.wraps if _casts(project, site)]
    makers = _makers(project) if sites else set()
    for call in project.method_calls(*sorted(makers)):
        holding = project.sharded(call.module, call.receiver)
        if not isinstance(holding, No) and any(site in sites for site in holding.sites):
            yield finding(
                call.module,
                call.node,
                "FM537",
                "buffers made here keep their dtype; FSDP1 cast them to `buffer_dtype` at the first forward",
                remedy="cast the model's floating-point buffers to `buffer_dtype` behind this call",
            )


def _casts(project: Project, site: WrapCall) -> bool:
    """Whether a wrap can be given a `buffer_dtype`."""
    given = [a.value for a in arguments_of(project, site)[0] if a.name == "mixed_precision"]
    return any(_has_buffer_dtype(value) for each in given for value in options(each))


def _has_buffer_dtype(value: Value) -> bool:
    if not isinstance(value, CallValue):
        return not isinstance(value, Literal)
    fields = {**dict(zip(MIXED_PRECISION_FIELDS, value.arguments, strict=False)), **value.keywords}
    dtype = fields.get("buffer_dtype")
    return dtype is not None and not (isinstance(dtype, ast.Constant) and dtype.value is None)


def _makers(project: Project) -> set[str]:
    """Names of methods that give a model its first values and make buffers, themselves or by further methods.

    By name alone: the modules of a model call one another's methods through containers and attributes."""
    modules = project.reading("register_buffer")
    buffers = {
        str(call.args[0].value)
        for module in modules
        for call in module.called("register_buffer")
        if call.args and isinstance(call.args[0], ast.Constant)
    }
    found: set[str] = set()
    more = {name for module in modules for name in _using(module, {"register_buffer"}, stored=buffers)}
    while more - found:
        found |= more
        callers = project.reading(*sorted(more))
        names = {name for module in callers for name in _using(module, more, stored=set())}
        more = {name for name in names if _FIRST_VALUES.search(name)}
    return {name for name in found if _FIRST_VALUES.search(name)}


def _using(module: Module, called: set[str], *, stored: set[str]) -> Iterator[str]:
    """Names of methods that can run between the wrap and the first forward pass, and that take some
    attributes or put others in their places."""
    for node in (*module.attributes(*called), *module.attributes(*stored)):
        function = module.function(node)
        is_it = isinstance(node.ctx, ast.Store) == (node.attr in stored)
        if is_it and function is not None and module.class_of(function) and function.name not in _NOT_BETWEEN:
            yield function.name
