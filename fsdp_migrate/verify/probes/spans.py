"""What a step's time went to, as the record keeps it."""

from __future__ import annotations


def span_words(spans: list[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Spans as the record keeps them: in seconds from the first one's begin."""
    first = min((begin for _, begin, _ in spans), default=0.0)
    return [(kind, round(begin - first, 7), round(end - first, 7)) for kind, begin, end in spans]
