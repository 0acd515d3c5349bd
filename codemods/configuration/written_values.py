"""What is written for a trainer's `fsdp` and `fsdp_config`, as values. Pure."""

from __future__ import annotations

import ast

from codemods.configuration.settings import bare


def strings_of(node: ast.expr) -> list[ast.expr] | None:
    """The non-empty strings or lists that an argument may be; None where it is something else."""
    if isinstance(node, ast.IfExp):
        both = [strings_of(node.body), strings_of(node.orelse)]
        return None if None in both else [s for some in both for s in some or ()]
    if isinstance(node, ast.Constant) and (node.value in ("", None) or isinstance(node.value, bool)):
        return []
    if isinstance(node, ast.List | ast.Tuple) and node.elts:
        return [node]
    return [node] if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def value_of(node: ast.expr) -> object:
    """A string, or a list of strings and `FSDPOption` members by their names."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [e.value if isinstance(e, ast.Constant) else ast.unparse(e) for e in node.elts]
    return None


def literal_of(node: ast.expr) -> object:
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None
    return value


def told_by(display: ast.Dict) -> dict[str, object] | None:
    """The settings of a dict display; values made at run time are kept as they are, but not those that
    decide."""
    found: dict[str, object] = {}
    for key, value in zip(display.keys, display.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        said = literal_of(value)
        known = said is not None or (isinstance(value, ast.Constant) and value.value is None)
        if not known and bare(key.value) in (
            "reshard_after_forward",
            "version",
            "min_num_params",
            "xla",
        ):
            return None
        found[key.value] = said if known else ast.unparse(value)
    return found
