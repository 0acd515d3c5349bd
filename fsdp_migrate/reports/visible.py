"""Text from files, made fit to look at: what would steer a terminal, hide or turn text is named instead.

Escape sequences can rewrite a terminal's screen, and bidirectional controls can show code in another order
than it runs ("Trojan Source", CVE-2021-42574). Pure.
"""

from __future__ import annotations

import re

_UNSEEN = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff]"
)
LONGEST = 400
"""Characters of a line of code that are shown; a notebook's or a data file's can be millions long."""


def visible(text: str) -> str:
    """The text with every control character but the tab named: `<U+001B>`; bytes that are none: `<0xE9>`."""
    return _UNSEEN.sub(_name, text)


def clipped(text: str, longest: int = LONGEST, *, about: int | None = None) -> str:
    """A long line without its middle.

    Args:
        about: a position to show with what stands around it, in place of the two ends.
    """
    if len(text) <= longest:
        return text
    if about is not None:
        start = min(max(0, about - longest // 4), len(text) - longest)
        end = start + longest
        return f"{_left_out(start)}{text[start:end]}{_left_out(len(text) - end)}"
    half = longest // 2
    return f"{text[:half]}{_left_out(len(text) - 2 * half)}{text[-half:]}"


def _left_out(number: int) -> str:
    return f" [... {number:,} characters ...] " if number else ""


def _name(found: re.Match[str]) -> str:
    number = ord(found[0])
    # Bytes of a file name that are no UTF-8 come as lone surrogates (PEP 383).
    return f"<0x{number - 0xDC00:02X}>" if 0xDC80 <= number <= 0xDCFF else f"<U+{number:04X}>"
