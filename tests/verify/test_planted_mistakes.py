"""`verify` fails on translations with a planted mistake, for the right reason, and passes the right ones."""

from __future__ import annotations

import pytest
from bench import Bench

from fsdp_migrate.reports import parity
from fsdp_migrate.verify.model import Outcome, ParityReport


def outcome(report: ParityReport, title: str) -> Outcome:
    return next(check.outcome for check in report.checks if check.title.startswith(title))


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--flat", "--tied", "--optimizer", "sgd"),
        ("--frozen", "--strategy", "SHARD_GRAD_OP"),
        ("--seed-by-rank", "--sync", "--strategy", "NO_SHARD"),
        ("--dtype", "bf16", "--reduce", "bf16", "--accumulate", "2"),
        ("--unused",),
        ("--groups",),
        ("--autocast",),
    ],
    ids=" ".join,
)
def test_right_translation_is_equal_to_the_last_bit(two_ranks: Bench, options: tuple[str, ...]) -> None:
    report = two_ranks.verdict(*options)
    assert report.passed, report.causes
    assert report.largest == ()
    assert not report.causes
    for title in ("Initial weights", "Loss", "Gradients before", "Weights", "Optimizer state", "Buffers"):
        assert outcome(report, title) is Outcome.EQUAL, title
    assert report.original.losses == report.candidate.losses
    assert len(report.original.losses) == report.steps == 3
    assert report.original.losses[2] < report.original.losses[0]


@pytest.mark.parametrize(
    "options",
    [
        ("--clip", "0.3"),
        ("--clip", "0.3", "--accumulate", "3", "--optimizer", "sgd"),
        ("--dtype", "bf16", "--clip", "0.3"),
        # FSDP1 adds unsynchronised gradients in bf16, FSDP2 in fp32: different by design.
        ("--dtype", "bf16", "--accumulate", "2", "--clip", "0.3"),
    ],
    ids=" ".join,
)
def test_right_translation_with_rounding_is_within_measured_noise(
    two_ranks: Bench, options: tuple[str, ...]
) -> None:
    report = two_ranks.verdict(*options)
    assert report.passed, (report.first, report.causes)
    assert outcome(report, "Initial weights") is Outcome.EQUAL
    assert outcome(report, "Gradient norm") is not Outcome.NOT_OBSERVED
    assert report.largest
    assert all(one.relative <= one.limit for one in report.largest)
    assert any("rounding" in check.origin or "differs from itself" in check.origin for check in report.checks)


def test_exact_asks_for_equal_bits_and_clipped_gradients_have_them(two_ranks: Bench) -> None:
    """Norms are added up in float64, and rounded once; where the arms round otherwise, that is said."""
    report = two_ranks.verdict("--clip", "0.3", exact=True)
    assert (report.passed, report.exact, report.largest) == (True, True, ())
    assert outcome(report, "Gradient norm") is outcome(report, "Gradients after") is Outcome.EQUAL
    assert "exact: no difference is allowed; norms" in report.reduction
    norms = report.candidate.gradient_norms
    usual = two_ranks.verdict("--clip", "0.3").candidate.gradient_norms
    assert min(norms) > 0.3 and norms == pytest.approx(usual, rel=1e-6)

    report = two_ranks.verdict("--dtype", "bf16", "--accumulate", "2", exact=True)
    assert (report.passed, report.causes[0].code) == (False, "rounding")
    assert "FSDP1 adds gradients of micro-batches without synchronisation" in report.causes[0].text
    assert report.first is not None and report.first.limit == 0.0

    report = two_ranks.verdict("--clip", "0.3", exact=True, mistake="no-clip")
    assert (report.passed, report.causes[0].code) == (False, "not-clipped")


@pytest.mark.parametrize(
    ("mistake", "options", "code", "words", "first"),
    [
        ("optimizer-first", (), "optimizer-before-shard", "holds 14 parameters that are", (1, "weight")),
        ("sync-always", ("--accumulate", "3"), "no-sync-dropped", "3 times per step in the candidate", None),
        ("casts", ("--dtype", "bf16"), "input-cast", "were bfloat16 in the candidate", (1, "loss")),
        (
            "no-clip",
            ("--clip", "0.3"),
            "not-clipped",
            "the candidate did not",
            (1, "gradient as the optimizer got it"),
        ),
        ("reduce-dtype", ("--dtype", "bf16"), "precision", "reduce_dtype is bfloat16", (1, "gradient")),
        ("autocast", ("--autocast",), "autocast-cache", "keeps the weights it cast", (2, "loss")),
        (
            "local-norm-call",
            ("--clip", "0.3"),
            "local-norm",
            "its norm differs by rank",
            (1, "gradient norm"),
        ),
        (
            "",
            ("--drop-first", "--accumulate", "2"),
            "unsynced-gradients-kept",
            "which reduced nothing",
            (2, "gradient"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "-" in value else "",
)
def test_planted_mistake_fails_with_its_cause(
    two_ranks: Bench,
    mistake: str,
    options: tuple[str, ...],
    code: str,
    words: str,
    first: tuple[int, str] | None,
) -> None:
    report = two_ranks.verdict(*options, mistake=mistake)
    assert not report.passed
    assert report.causes[0].code == code, report.causes
    assert words in report.causes[0].text
    assert report.causes[0].remedy
    found = None if report.first is None else (report.first.step, report.first.quantity)
    assert found == first


def test_root_only_sharding_is_reported_and_parity_holds(two_ranks: Bench) -> None:
    report = two_ranks.verdict(mistake="root-only")
    assert report.passed
    assert report.original.units == ("", "blocks.0", "blocks.1", "blocks.2")
    assert report.candidate.units == ("",)
    assert any(notice.startswith("units changed: 4 -> 1") for notice in report.notices)
    assert report.largest == ()


def test_clipping_that_never_clips_may_be_missing_and_the_head_says_so(two_ranks: Bench) -> None:
    right, wrong = two_ranks.verdict("--clip", "50"), two_ranks.verdict("--clip", "50", mistake="no-clip")
    assert right.passed and wrong.passed
    assert right.warnings == ()
    (warning,) = wrong.warnings
    assert "reported a gradient norm 3 times and the candidate never: clipping may be missing" in warning
    for form in ("text", "md"):
        head = parity.render(wrong, form).partition("Parameters: names and shapes")[0]
        assert "clipping may be missing" in " ".join(head.split())
