"""Accelerate's plugin call as it is being translated, and its arguments that hold FSDP1's types.

Source: accelerate 1.15 `utils/dataclasses.py::set_mixed_precision`,
`utils/fsdp_utils.py::fsdp2_prepare_auto_wrap_policy`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from codemods.analysis.module import Module
from codemods.analysis.values import CallValue, DictValue, Literal, Named, Sequenced, Value
from codemods.editing.code import code, delete, join, replace
from codemods.model import Code, Edit
from codemods.project import Project

_TRANSFORMER = "torch.distributed.fsdp.wrap.transformer_auto_wrap_policy"
_NO_FIELD = (
    "buffer_dtype",
    "keep_low_precision_grads",
    "cast_root_forward_inputs",
    "_module_classes_to_ignore",
)


class LeftToPerson(Exception):
    """The call cannot be translated: why, and what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


@dataclass(slots=True)
class PluginCall:
    """One call, and what its translation comes to.

    Attributes:
        given: its keyword arguments by name; those of `**{...}` are the dictionary's items.
        added: new arguments, as text.
        table: the dictionary that holds them all.
        notes: an argument, and what ends with it.
    """

    project: Project
    module: Module
    call: ast.Call
    given: dict[str, ast.keyword]
    edits: list[Edit] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    notes: list[tuple[ast.keyword, str]] = field(default_factory=list)
    deleted: list[ast.keyword] = field(default_factory=list)
    table: ast.Dict | None = None

    def value(self, name: str) -> Value:
        """What an argument comes to."""
        return self.project.evaluate(self.module, self.given[name].value)

    def put(self, name: str, new: Code) -> None:
        """Replace an argument's value; where it is a variable of its own, the variable's."""
        definition = self.sole_definition(name)
        place = definition.value if definition is not None else self.given[name].value
        self.edits.append(replace(self.module, place, new))

    def sole_definition(self, name: str) -> ast.Assign | None:
        """The only assignment of the variable that an argument is, if it is used nowhere else."""
        node = self.given[name].value
        found = self.module.scope_of(node).lookup(node.id) if isinstance(node, ast.Name) else None
        if found is None or len(found[1]) != 1 or not isinstance(found[1][0].node, ast.Assign):
            return None
        uses = [
            n for n in self.module.nodes(ast.Name) if isinstance(n, ast.Name) and n.id == found[1][0].name
        ]
        assignment = found[1][0].node
        is_plain = len(assignment.targets) == 1 and isinstance(assignment.targets[0], ast.Name)
        return assignment if is_plain and len(uses) == 2 else None

    def rename(self, name: str, new_name: str, value: str) -> None:
        """Another argument in place of one."""
        keyword = self.given[name]
        text = f"{new_name}={value}" if self.table is None else f'"{new_name}": {value}'
        self.edits.append(replace(self.module, keyword, (text,)))

    def written(self, argument: str) -> str:
        """A new argument as it is written: `name=value`, or as an item of the dictionary."""
        name, _, value = argument.partition("=")
        return argument if self.table is None else f'"{name}": {value}'


def is_within(plugin: PluginCall, name: str, node: ast.AST) -> bool:
    """Whether a node stands within an argument, or is the value of a variable that is for it alone."""
    definition = plugin.sole_definition(name)
    root = definition.value if definition is not None else plugin.given[name].value
    return any(child is node for child in ast.walk(root))


def precision(plugin: PluginCall) -> None:
    """`mixed_precision_policy`."""
    name = "mixed_precision_policy"
    if name not in plugin.given:
        return
    value = plugin.value(name)
    if isinstance(value, Literal):
        return  # a string such as "bf16", or None: the same under both versions
    made = isinstance(value, CallValue) and value.function.name.endswith(".MixedPrecision")
    if isinstance(value, DictValue) or not made:
        raise LeftToPerson(
            "`mixed_precision_policy` is no `MixedPrecision(...)` that can be seen",
            "give it a `MixedPrecisionPolicy` with the same param_dtype and reduce_dtype, and set "
            "`fsdp_version=2`",
        )
    assert isinstance(value, CallValue)
    if not is_within(plugin, name, value.origin.node) or value.arguments or value.spreads:
        raise LeftToPerson(
            "`MixedPrecision` is made elsewhere, or with unnamed arguments",
            "make a `MixedPrecisionPolicy` with the same param_dtype and reduce_dtype of it, and set "
            "`fsdp_version=2`",
        )
    parts = []
    for argument, node in value.keywords.items():
        if argument in _NO_FIELD:
            message = f"`{argument}` has no counterpart: FSDP2 leaves buffers and gradients in their dtype"
            plugin.notes.append((plugin.given[name], message))
        else:
            parts.append(code(plugin.module, f"{argument}={{value}}", value=node))
    new = code(None, "{torch.distributed.fsdp.MixedPrecisionPolicy}")
    plugin.put(name, (*new, "(", *join(parts, ", "), ")"))


def policy(plugin: PluginCall) -> None:
    """`auto_wrap_policy`."""
    name = "auto_wrap_policy"
    if name not in plugin.given:
        return
    value = plugin.value(name)
    if isinstance(value, Literal):
        if str(value.value).upper() == "SIZE_BASED_WRAP":
            message = "units chosen by size differ under FSDP2: all parameters of a module count"
            plugin.notes.append((plugin.given[name], message))
        return
    classes = _layer_classes(plugin, value)
    if classes is None:
        raise LeftToPerson(
            "Accelerate's FSDP2 does not read this policy: the whole model would be one unit",
            'use `auto_wrap_policy="transformer_based_wrap"` and `transformer_cls_names_to_wrap=[...]`, and '
            "`fsdp_version=2`",
        )
    definition = plugin.sole_definition(name)
    if definition is not None:
        plugin.edits.append(delete(plugin.module, definition))
        plugin.edits.append(replace(plugin.module, plugin.given[name].value, ('"transformer_based_wrap"',)))
    else:
        plugin.put(name, ('"transformer_based_wrap"',))
    if classes and "transformer_cls_names_to_wrap" not in plugin.given:
        plugin.added.append(f"transformer_cls_names_to_wrap=[{', '.join(classes)}]")


def _layer_classes(plugin: PluginCall, value: Value) -> list[str] | None:
    """The names of the classes of `partial(transformer_auto_wrap_policy, transformer_layer_cls={...})`, as
    code.

    None for other policies; empty for the bare function, which takes the model's own classes.
    """
    module = plugin.module
    if isinstance(value, Named) and value.symbol.name == _TRANSFORMER:
        return []
    if not isinstance(value, CallValue) or value.function.name != "functools.partial" or not value.arguments:
        return None
    made_of = plugin.project.resolve(value.origin.module, value.arguments[0])
    classes = value.keywords.get("transformer_layer_cls")
    if (
        made_of is None
        or made_of.name != _TRANSFORMER
        or classes is None
        or value.origin.module is not module
    ):
        return None
    elements = plugin.project.evaluate(module, classes)
    if not isinstance(elements, Sequenced) or elements.origin.module is not module:
        return None
    if not all(isinstance(element, ast.Name | ast.Attribute) for element in elements.elements):
        return None
    return [f"{module.code(element)}.__name__" for element in elements.elements]
