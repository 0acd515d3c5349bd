"""Checks that need a GPU; `benchmarks/gpu.sh` runs them, the tests of every machine do not.

python -m pytest tests/verify/gpu/gpu_checks.py
"""

from __future__ import annotations

import torch

from fsdp_migrate.verify.model import LaunchOptions
from fsdp_migrate.verify.reference_job.config import ReferenceConfig
from fsdp_migrate.verify.run import verify_reference
from fsdp_migrate.verify.simulate import simulate


def test_arms_are_equal_on_nccl_with_world_size_one() -> None:
    options = LaunchOptions(nproc=1, steps=3, device="cuda", timeout_s=120)
    report = verify_reference(ReferenceConfig(steps=3, dtype="bf16"), options)
    assert report.passed, report.causes
    assert report.device == "cuda"
    assert report.original.peak_is == "GPU memory allocated"


def test_performance_on_a_gpu_has_overlap_memory_and_mfu() -> None:
    options = LaunchOptions(nproc=1, steps=3, device="cuda", timeout_s=120, profile=True)
    report = verify_reference(ReferenceConfig(steps=3, size="small", dtype="bf16"), options)
    for arm in report.performance:
        assert {phase for phase, _, _ in arm.memory} >= {"forward", "backward", "optimizer"}
        assert arm.chip == torch.cuda.get_device_name()
        assert arm.mfu_percent is None or 0 < arm.mfu_percent < 100


def test_simulated_ranks_need_less_the_more_there_are() -> None:
    options = LaunchOptions(nproc=1, device="cuda", timeout_s=120)
    job = ReferenceConfig(size="medium", dtype="bf16")
    few, many = (simulate(job, world, options, lambda _: None) for world in (2, 64))
    for left, right in zip(few.arms, many.arms, strict=True):
        assert right.steady < left.steady
        assert right.peak_reserved >= right.peak_allocated > right.steady
