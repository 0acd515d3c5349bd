"""A third arm says which side is wrong: the original where it rounds, the candidate where a mistake is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed.fsdp
from bench import PROJECT, bench

from fsdp_migrate.verify import unsharded
from fsdp_migrate.verify.model import Difference, ParityReport, VerifyRequest
from fsdp_migrate.verify.record import ArmRecord, StepFacts
from fsdp_migrate.verify.third import which_side


def verdict(folder: Path, candidate_mistake: str, original: str) -> ParityReport:
    arguments = ("--dtype", "bf16", *(("--mistake", candidate_mistake) if candidate_mistake else ()))
    request = VerifyRequest("train_fsdp2.py", arguments, baseline=original, cwd=PROJECT)
    return bench(folder, 2, steps=2, third_arm=True).script(request)


def test_candidate_with_a_mistake_is_the_wrong_side(tmp_path: Path) -> None:
    report = verdict(tmp_path, "scale", "train_fsdp1.py")
    assert not report.passed
    assert report.third.endswith("the candidate is the one that is wrong"), report.third
    assert "against a third arm, unsharded and in fp32, the loss of rank 0 in step 1" in report.third


def test_third_arm_computes_without_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner in (torch.amp.autocast_mode.autocast, torch.distributed.fsdp.FullyShardedDataParallel):
        monkeypatch.setattr(owner, "__init__", owner.__init__)  # put back afterwards
    one = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert (one @ one).dtype is torch.bfloat16
    unsharded.apply()
    with torch.autocast("cpu", torch.bfloat16):
        assert (one @ one).dtype is torch.float32


def test_which_side_is_told_by_distance() -> None:
    def arm(loss: float) -> ArmRecord:
        facts = StepFacts(1, (loss,), (), (), (), (), {}, 0.1, 0.0)
        return ArmRecord(ranks=1, steps={1: [facts]})

    first = Difference(1, "loss", "rank 0", 0.1, 0.1, 0.0, 1.0, 1.1)
    assert "the original is the one" in which_side(arm(1.0), arm(1.1), arm(1.1001), first)
    assert "the candidate is the one" in which_side(arm(1.0), arm(1.1), arm(1.0001), first)
    assert "neither" in which_side(arm(1.0), arm(1.1), arm(1.05), first)
    assert "both arms are equal" in which_side(arm(1.0), arm(1.0), arm(1.0), None)
    nan = which_side(arm(1.0), arm(float("nan")), arm(1.0), first)
    assert "the candidate is the one" in nan
