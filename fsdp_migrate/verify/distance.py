"""How far two tensors are apart, by their elements or by what was kept of them; pure."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fsdp_migrate.verify.record import widen
from fsdp_migrate.verify.whole import Whole


def difference(left: Whole, right: Whole) -> tuple[float, float, float, float, tuple[int, ...]] | None:
    """Largest absolute and relative l2 difference, two values, their place; `None` when equal."""
    if left.stored is not None and right.stored is not None:
        if left.dtype == right.dtype and np.array_equal(left.stored, right.stored):
            return None
        return _elementwise(widen(left.stored, left.dtype), widen(right.stored, right.dtype), left.shape)
    a, b = left.sums(), right.sums()
    if a.same(b):
        return None
    apart = np.subtract(a.projections, b.projections)
    distance = math.sqrt(float(np.sum(np.square(apart))))
    norms = math.sqrt(a.square), math.sqrt(b.square)
    return float("nan"), ratio(distance, max(norms)), *norms, ()


def _elementwise(
    a: NDArray[np.float64], b: NDArray[np.float64], shape: tuple[int, ...]
) -> tuple[float, float, float, float, tuple[int, ...]] | None:
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b)
    apart[(np.isnan(a) & np.isnan(b)) | (a == b)] = 0.0
    apart[np.isnan(apart)] = np.inf
    if not apart.any():
        return None
    worst = int(apart.argmax())
    with np.errstate(invalid="ignore", over="ignore"):
        distance = float(np.sqrt(np.square(apart).sum()))
        size = max(float(np.linalg.norm(a)), float(np.linalg.norm(b)))
    index = tuple(int(one) for one in np.unravel_index(worst, shape)) if shape else ()
    return float(apart[worst]), ratio(distance, size), float(a[worst]), float(b[worst]), index


def ratio(distance: float, size: float) -> float:
    """One over the other; infinite where either is no number, or the other is zero."""
    if math.isinf(distance) or math.isnan(distance) or math.isnan(size):
        return math.inf
    return distance / size if size else math.inf
