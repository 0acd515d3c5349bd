"""Charts of the parity report as SVG: curves of both arms, of their differences, a strip per parameter.

Every chart is told by shape as well as by colour (solid and dashed lines, figures in the strip's titles) and
scales with the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsdp_migrate.verify.model import ParityReport

_WIDTH, _HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 12, 12, 28
_DASHES = ("none", "7 4", "2 3", "10 3 2 3", "4 4", "1 5")
_FLOOR = 1e-8
_CELL, _ROW, _NAME = 26, 15, 250


def loss_curves(report: ParityReport) -> str:
    """Loss of both arms over the steps."""
    series = [("original", report.original.losses), ("candidate", report.candidate.losses)]
    values = [one for _, row in series for one in row if math.isfinite(one)]
    if not values:
        return "<p class=faint>No loss was observed.</p>"
    low, high = min(values), max(values)
    pad = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return _chart(series, low - pad, high + pad, lambda value: f"{value:.4g}")


def difference_curves(report: ParityReport) -> str:
    """Largest relative difference of each quantity, on a logarithmic axis that ends in 0."""
    series = [(name, row) for name, row in report.curves if any(row)]
    if not series:
        return "<p>Nothing differs, not even in the last bit.</p>"
    logs = [(name, [math.log10(min(max(one, _FLOOR), 1e3)) for one in row]) for name, row in series]

    def label(value: float) -> str:
        return "0" if value <= math.log10(_FLOOR) else f"1e{value:.0f}"

    return _chart(logs, math.log10(_FLOOR), max(0.0, *(max(row) for _, row in logs)), label)


def _chart(
    series: Sequence[tuple[str, Sequence[float]]], low: float, high: float, label: Callable[[float], str]
) -> str:
    steps = max(len(row) for _, row in series)
    lines = [_grid(low, high, steps, label)]
    for number, (name, row) in enumerate(series):
        points = [
            (_x(step, steps), _y(value, low, high)) for step, value in enumerate(row) if math.isfinite(value)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = _DASHES[number % len(_DASHES)]
        lines.append(
            f'<polyline class=s{number % 6} stroke-dasharray="{dash}" points="{path}"><title>{escape(name)}'
            "</title></polyline>"
        )
        lines += [f'<circle class=s{number % 6} cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in points]
    names = "".join(
        f'<span><svg class=key viewBox="0 0 30 8" aria-hidden=true><line class=s{number % 6} x1=0 y1=4 x2=30 '
        f'y2=4 stroke-dasharray="{_DASHES[number % len(_DASHES)]}"/></svg>{escape(name)}</span>'
        for number, (name, _) in enumerate(series)
    )
    title = escape(", ".join(name for name, _ in series))
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role=img aria-label="{title}">{"".join(lines)}</svg>'
        f"<figcaption>{names}</figcaption></figure>"
    )


def _grid(low: float, high: float, steps: int, label: Callable[[float], str]) -> str:
    parts = []
    for position in range(5):
        value = low + (high - low) * position / 4
        y = _y(value, low, high)
        parts.append(f'<line class=grid x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor=end>{escape(label(value))}</text>')
    for step in range(0, steps, max(1, steps // 10)):
        x = _x(step, steps)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 8}" text-anchor=middle>{step + 1}</text>')
    return "".join(parts)


def _x(step: int, steps: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (step / max(1, steps - 1) if steps > 1 else 0.5)


def _y(value: float, low: float, high: float) -> float:
    span = high - low or 1.0
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - (value - low) / span)


def heat_strip(report: ParityReport) -> str:
    """A row per parameter, a cell per step from 0: empty where equal, darker the further apart."""
    if not report.heat:
        return "<p class=faint>No weights were compared.</p>"
    rows = [(name, row) for name, row in report.heat if any(row)]
    equal = len(report.heat) - len(rows)
    words = f"<p>{equal} of {len(report.heat)} parameters are equal to the last bit in every step.</p>"
    if not rows:
        return words
    steps = len(rows[0][1])
    width, height = _NAME + steps * _CELL, (len(rows) + 1) * _ROW
    cells = "".join(
        f'<text x="{_NAME + step * _CELL + _CELL / 2}" y=11 text-anchor=middle>{step}</text>'
        for step in range(steps)
    )
    cells += "".join(_strip(number, name, row) for number, (name, row) in enumerate(rows, 1))
    return (
        f'{words}<div class=scroll><svg class=heat style="width:{width}px" viewBox="0 0 {width} {height}" '
        f'role=img aria-label="relative difference of weights by parameter and step">{cells}</svg></div>'
    )


def _strip(number: int, name: str, row: Iterable[float]) -> str:
    y = number * _ROW
    shown = name if len(name) <= 38 else f"…{name[-37:]}"
    cells = f'<text x="{_NAME - 6}" y="{y + 11}" text-anchor=end>{escape(shown)}</text>'
    for step, value in enumerate(row):
        strength = 0.0 if not value else min(1.0, max(0.08, 1 + math.log10(min(value, 1.0) or _FLOOR) / 8))
        cells += (
            f'<rect x="{_NAME + step * _CELL}" y="{y + 1}" width="{_CELL - 2}" height="{_ROW - 2}" '
            f'fill-opacity="{strength:.2f}"><title>{escape(name)}, step {step}: {value:.1e}</title></rect>'
        )
    return cells


def memory_bars(report: ParityReport) -> str:
    """Peak memory of each phase, both arms; nothing where no GPU was measured."""
    bars = [(arm.name.value, *phase) for arm in report.performance for phase in arm.memory if phase[0]]
    if not bars:
        return ""
    most = max(reserved for *_, reserved in bars) or 1
    parts = []
    for number, (arm, phase, allocated, reserved) in enumerate(bars):
        y, scale = number * 20, (_WIDTH - 260) / most
        parts.append(f'<text x=170 y="{y + 14}" text-anchor=end>{escape(f"{arm}, {phase}")}</text>')
        parts.append(f'<rect class=outline x=178 y="{y + 3}" width="{reserved * scale:.1f}" height=14 />')
        parts.append(f'<rect class=bar x=178 y="{y + 3}" width="{allocated * scale:.1f}" height=14 />')
        words = f"{allocated / (1 << 20):,.0f} MiB"
        parts.append(f'<text x="{184 + reserved * scale:.1f}" y="{y + 14}">{words}</text>')
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {len(bars) * 20}" role=img aria-label="peak memory by phase">'
        f"{''.join(parts)}</svg><figcaption>filled: allocated, outlined: reserved</figcaption></figure>"
    )
