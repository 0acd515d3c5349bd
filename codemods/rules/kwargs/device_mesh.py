"""`device_mesh`. Source: `torch.distributed.device_mesh.init_device_mesh`, `fully_shard(mesh=)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.origins import Origins
from codemods.rule import (
    CallValue,
    Finding,
    Literal,
    Module,
    Named,
    Safety,
    append_argument,
    finding,
    options,
)
from codemods.shard_call import Argument, Inline, Translation, keyword, sibling

_NAMES = 'mesh_dim_names=("replicate", "shard")'
_BUILDERS = ("init_device_mesh", "DeviceMesh")


@keyword("device_mesh", {"FM116": "a 2-D mesh is given names"})
def device_mesh(argument: Argument) -> Translation:
    """`device_mesh` becomes `mesh=`; a 2-D mesh is (replicate, shard) in both.

    `fully_shard` refuses a 2-D mesh without names, so `mesh_dim_names=("replicate", "shard")` is added where
    such a mesh is built, in whatever function or module that is.
    """
    if isinstance(argument.value, Literal) and argument.value.value is None:
        return Translation(inline=Inline(), keep=False)
    named = tuple(_with_names(module, call) for module, call in _nameless(argument))
    text = argument.kept() if argument.at_call else None
    inline = Inline(every={"mesh": text}) if text is not None else None
    return Translation(inline=inline, findings=named)


def _nameless(argument: Argument) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that can have built the mesh and give no names to its two dimensions."""
    origins = Origins(argument.project.links)
    made = {node for node in origins.of(argument.module, argument.node) if isinstance(node, ast.Call)}
    places = {node: origins.homes[node] for node in made}
    for value in options(argument.value):
        if isinstance(value, CallValue) and isinstance(value.origin.node, ast.Call):
            places[value.origin.node] = value.origin.module
    for call, module in sorted(places.items(), key=lambda place: (place[1].path, place[0].lineno)):
        symbol = argument.project.resolve(module, call.func)
        given = {k.arg: k.value for k in call.keywords}
        if symbol is None or symbol.name.rpartition(".")[2] not in _BUILDERS:
            continue
        if None in given or "mesh_dim_names" in given or len(call.args) > 2:
            continue
        shape = call.args[1] if len(call.args) > 1 else given.get("mesh_shape") or given.get("mesh")
        is_mesh = symbol.name.endswith(".DeviceMesh")
        if _has_two_dimensions(shape, is_mesh=is_mesh) or (_is_hybrid(argument) and _is_unseen(shape)):
            yield module, call


def _has_two_dimensions(shape: ast.expr | None, *, is_mesh: bool) -> bool:
    """Whether a shape, or the ranks themselves, can be seen to have two dimensions."""
    match shape:
        case ast.Tuple(elts=elements) | ast.List(elts=elements) if is_mesh:
            return bool(elements) and all(isinstance(e, ast.List | ast.Tuple) for e in elements)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return len(elements) == 2
        case ast.Call(func=ast.Attribute(attr="reshape" | "view"), args=arguments) if is_mesh:
            shape = arguments[0] if len(arguments) == 1 else None
            return len(arguments) == 2 or (isinstance(shape, ast.Tuple | ast.List) and len(shape.elts) == 2)
    return False


def _is_unseen(shape: ast.expr | None) -> bool:
    return isinstance(shape, ast.Name | ast.Attribute)


def _is_hybrid(argument: Argument) -> bool:
    """Whether the strategy is one that wants a mesh of two dimensions."""
    strategy = sibling(argument, "sharding_strategy")
    if strategy is None:
        return False
    values = options(argument.project.evaluate(argument.site.module, strategy))
    return all(isinstance(value, Named) and "HYBRID" in value.symbol.name for value in values)


def _with_names(module: Module, call: ast.Call) -> Finding:
    return finding(
        module,
        call,
        "FM116",
        "`fully_shard` needs names for the dimensions of a 2-D mesh",
        safety=Safety.SAFE,
        edits=[append_argument(module, call, _NAMES)],
    )
