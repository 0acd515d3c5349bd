"""What is said of a version of torch is said where it applies, and nowhere else."""

from __future__ import annotations

import pytest

from fsdp_migrate.verify.advisories import advisories, version_of
from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.record import ArmRecord, Unit


def arm(torch_version: str, *, tied: bool = False, rows: int = 512, kind: str = "FSDP2") -> ArmRecord:
    return ArmRecord(
        ranks=2,
        torch_version=torch_version,
        kind=kind,
        units=[Unit("", kind, "", "", False, "", shards=2, replicas=1)],
        shapes={"embedding.weight": (rows, 8)},
        tied={("embedding.weight", "head.weight")} if tied else set(),
    )


@pytest.mark.parametrize(
    ("candidate", "unused", "said"),
    [
        (arm("2.9.1+cu128", tied=True), False, ["separate units", "odd --nproc"]),
        (arm("2.9.1", tied=True, rows=511), False, ["separate units"]),
        (arm("2.9.1"), True, ["set_reduce_scatter_unused_params"]),
        (arm("2.13.0", tied=True), True, []),
        (arm("2.9.1"), False, []),
        (arm("2.9.1", tied=True, kind="FSDP1"), True, []),
        (arm("a build of mine", tied=True), True, []),
    ],
)
def test_what_applies_is_said(candidate: ArmRecord, unused: bool, said: list[str]) -> None:
    found = list(advisories(arm("2.9.1"), candidate, Comparison(unused={"w"} if unused else set())))
    assert len(found) == len(said)
    assert all(words in line for words, line in zip(said, found, strict=True))


def test_versions_are_compared_by_number() -> None:
    assert version_of("2.10.0a0+git") == (2, 10)
    assert version_of("2.10.0") > version_of("2.9.1")  # type: ignore[operator]
    assert version_of("") is None
