"""The timeline of the parity report as SVG: a lane for each kind of work, the arms on one scale.

Lanes are told by their place and name, with the time of each in words, so that neither colour nor a pointer
is needed.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from fsdp_migrate.verify.timeline import KINDS

if TYPE_CHECKING:
    from fsdp_migrate.verify.model import ParityReport, Timeline

_WIDTH = 720
_NAME, _RIGHT = 176, 26
_LANE, _BAR = 20, 14
_TICKS = 5


def timelines(report: ParityReport) -> str:
    """A figure per arm; nothing was seen of an arm that has none."""
    longest = max(one.seconds for one in report.timelines) or 1.0
    figures = "".join(_figure(one, longest) for one in report.timelines)
    sources = "; ".join(dict.fromkeys(one.source for one in report.timelines))
    return f"{figures}<p class=faint>Seen by {escape(sources)}. Gaps are what none of these kinds took.</p>"


def _figure(one: Timeline, longest: float) -> str:
    kinds = [kind for kind in KINDS if any(kind == found for found, _, _ in one.spans)]
    height = (len(kinds) + 1) * _LANE + 4
    scale = (_WIDTH - _NAME - _RIGHT) / longest
    lanes = "".join(_lane(one, kind, number, scale) for number, kind in enumerate(kinds))
    words = f"{one.name.value}: one step of {_milliseconds(one.seconds)}"
    axis = _axis(longest, scale, len(kinds) * _LANE)
    box = f'viewBox="0 0 {_WIDTH} {height}" role=img aria-label="{escape(words)}"'
    return (
        f"<figure class=timeline><figcaption>{escape(words)}</figcaption>"
        f"<svg {box}>{axis}{lanes}</svg></figure>"
    )


def _lane(one: Timeline, kind: str, number: int, scale: float) -> str:
    y = number * _LANE
    spans = [(begin, end) for found, begin, end in one.spans if found == kind]
    total = _milliseconds(sum(end - begin for begin, end in spans))
    parts = [f'<text x="{_NAME - 8}" y="{y + 13}" text-anchor=end>{escape(kind)} {total}</text>']
    parts += [
        f'<rect class="f{KINDS.index(kind)}" x="{_NAME + begin * scale:.2f}" y="{y + 2}" '
        f'width="{max(0.5, (end - begin) * scale):.2f}" height="{_BAR}"><title>{escape(kind)}: from '
        f"{_milliseconds(begin)} to {_milliseconds(end)}</title></rect>"
        for begin, end in spans
    ]
    return f'<g class=lane data-kind="{escape(kind)}">{"".join(parts)}</g>'


def _axis(longest: float, scale: float, bottom: int) -> str:
    parts = []
    for tick in range(_TICKS):
        at = longest * tick / (_TICKS - 1)
        x = _NAME + at * scale
        parts.append(f'<line class=grid x1="{x:.1f}" x2="{x:.1f}" y1=0 y2="{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor=middle>{_milliseconds(at)}</text>')
    return "".join(parts)


def _milliseconds(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"
