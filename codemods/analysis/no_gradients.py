"""Code in which torch computes no gradients."""

from __future__ import annotations

import ast

_NAMES = ("no_grad", "inference_mode")


def switches_gradients_off(node: ast.expr) -> bool:
    """Whether a context or decorator speaks of `torch.no_grad` or `torch.inference_mode`."""
    return any(name in ast.unparse(node) for name in _NAMES)
