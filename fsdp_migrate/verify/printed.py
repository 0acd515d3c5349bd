"""Compares the numbers that both arms printed; pure.

What a job computes can be right and what it logs wrong: under FSDP2 `.item()` of a DTensor is one rank's part
of a norm, a mean or a count, and no error says so. Lines are matched by their words; only numbers whose
words speak of training are compared, because times, rates and memory differ from run to run. Where lines
count steps or examples, those of equal counts are compared: a job that logs every few seconds logs other
steps in each run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?!\w)"
    r"|(?<![\w.])[-+]?(?:nan|inf)\b"
)
_COMPARED = re.compile(
    r"loss|norm|grad|param|accura|\bacc\b|ppl|perplex|mean|\bval\b|\beval\b|weight|\blr\b|learning|numel|element|"
    r"logit|score|(\b|_)(ce|nll|kl|aux|pg|mse|mae|rmse|psnr|ssim|fid|auc|f1|bleu|rouge\w?|wer|cer|bpb|bpc|iou|map|"
    r"elbo|std)(\b|_)|reward|entropy|advantage|margin|recall|precision|\berr(or)?\b|diverg|similarity|scale\b",
    re.IGNORECASE,
)
_NEVER = re.compile(
    r"time|second|\bsec|\bms\b|/s\b|it/s|tokens|tok\b|mem|gib|mib|\bgb\b|\bmb\b|throughput|mfu|flop|rate/s|pid|port|eta",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"(\d{4}[-/]\d\d[-/]\d\d[ T_]?)?\d{1,2}:\d\d(:\d\d)?([.,]\d+)?")
_OF_ALL = re.compile(r"loss|ppl|perplex|norm|\bval\b|\beval\b", re.IGNORECASE)
_OF_FEW = re.compile(r"accura|\bacc\b|score", re.IGNORECASE)
"""One example more or less is a large part of these."""
_OF_DIFFERENCES = re.compile(r"(\b|_)kl(\b|_)|diverg|advantage|margin|reward", re.IGNORECASE)
"""Of numbers about 1 that are nearly equal, and so of their rounding where they are small."""
_CANCELLED = 1e-5
_LABEL_CHARACTERS = 40
_UNIT_CHARACTERS = 10
_TOLERANCE = 2e-5
_COARSE = 2e-3
"""How much the last printed digit may excuse; one of few digits is most of the number."""
_COUNT = re.compile(r"param|numel|element", re.IGNORECASE)
_ROUNDED = 0.06
_DTENSOR = "DTensor("


@dataclass(frozen=True, slots=True)
class Printed:
    """One printed number that is not the same in both arms.

    Args:
        line: the candidate's line.
        label: the words before the number.
    """

    line: str
    label: str
    original: float
    candidate: float


def differences(
    original: tuple[str, ...],
    candidate: tuple[str, ...],
    tolerance: float = _TOLERANCE,
    of_all: float | None = None,
) -> list[Printed]:
    """Numbers that differ by more than a part of `tolerance`, in lines that read the same but for numbers.

    Args:
        of_all: the same for losses and norms of all gradients, which round less than single tensors.
    """
    allowed = (max(tolerance, _TOLERANCE), max(tolerance if of_all is None else of_all, _TOLERANCE))
    left, right = _by_words(original), _by_words(candidate)
    return [
        one
        for words, lines in right.items()
        for before, after in _pairs(left.get(words, []), lines)
        for one in _differing(before, after, *allowed)
    ]


def _pairs(left: list[str], right: list[str]) -> Iterator[tuple[str, str]]:
    """Lines of equal counts, or in their order where no count is in both arms."""
    before, after = _by_counts(left), _by_counts(right)
    common = [counts for counts in after if counts in before and counts]
    if not common:
        yield from zip(left, right, strict=False)
    for counts in common:
        yield from zip(before[counts], after[counts], strict=False)


def _by_counts(lines: list[str]) -> dict[tuple[str, ...], list[str]]:
    found: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for line in lines:
        found[tuple(_counts(_CLOCK.sub("", line)))].append(line)
    return found


def _counts(line: str) -> Iterator[str]:
    """Whole numbers whose words speak neither of training nor of what differs from run to run."""
    end = 0
    for number in _NUMBER.finditer(line):
        label = line[max(end, number.start() - _LABEL_CHARACTERS) : number.start()]
        end = number.end()
        if number[0].isdigit() and not _COMPARED.search(label) and not _NEVER.search(label):
            yield number[0]


def counts_whole_parameters(one: Printed, numel: int) -> bool:
    """Whether this is the number of a model's parameters, of which FSDP1 showed each rank its part."""
    if not _COUNT.search(one.line) or one.candidate <= one.original:
        return False
    return any(abs(one.candidate * unit - numel) < _ROUNDED * numel for unit in (1, 1e3, 1e6, 1e9))


def prints_dtensors(original: tuple[str, ...], candidate: tuple[str, ...]) -> str:
    """A line of the candidate that shows a DTensor where the original printed none; "" without one."""
    if any(_DTENSOR in line for line in original):
        return ""
    return next((line for line in candidate if _DTENSOR in line), "")


def _by_words(lines: tuple[str, ...]) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in lines:
        found[_NUMBER.sub("#", line)].append(line)
    return found


def _last_place(number: str) -> float:
    """What one more in the last digit is: 0.01 of "1.25"; nothing of a whole number."""
    digits, _, exponent = number.lower().partition("e")
    _, dot, decimals = digits.partition(".")
    return 10.0 ** (int(exponent or 0) - len(decimals)) if dot or exponent else 0.0


def _differing(before: str, after: str, tolerance: float, of_all: float) -> list[Printed]:
    found, line = [], after
    before, after = _CLOCK.sub("", before), _CLOCK.sub("", after)
    numbers = list(_NUMBER.finditer(after))
    starts = [one.start() for one in numbers[1:]] + [len(after)]
    end = 0
    for left, right, following in zip(_NUMBER.finditer(before), numbers, starts, strict=False):
        label = after[max(end, right.start() - _LABEL_CHARACTERS) : right.start()]
        end = right.end()
        words = label + " " + after[end : min(following, end + _UNIT_CHARACTERS)]
        a, b = (float(one[0].replace(",", "")) for one in (left, right))
        wanted = _COMPARED.search(words) and not _NEVER.search(words)
        size = max(abs(a), abs(b))
        last = min(1.5 * max(_last_place(one[0]) for one in (left, right)), _COARSE * size)
        allowed = of_all if _OF_ALL.search(words) and not _OF_FEW.search(words) else tolerance
        least = _CANCELLED if _OF_DIFFERENCES.search(words) else 0.0
        if wanted and a == a and b == b and abs(a - b) > max(last, allowed * size, least):
            found.append(Printed(line, label.strip(" :=,;|[({'\""), a, b))
    return found
