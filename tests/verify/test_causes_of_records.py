"""Causes named from records made by hand, of mistakes that need a particular step to show."""

from __future__ import annotations

from typing import Any

from fsdp_migrate.verify import known_errors
from fsdp_migrate.verify.causes import likely_causes
from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import Difference
from fsdp_migrate.verify.record import ArmRecord, Clip, OptimizerFacts, StepFacts


def arm(kind: str, *steps: dict[str, Any], **more: Any) -> ArmRecord:
    """One rank, one step for each dictionary of facts."""
    usual = {"losses": (1.0,), "inputs": ("a",), "scales": ()}
    made = ArmRecord(ranks=1, kind=kind, shapes={"w": (2,)}, trainable={"w": True}, sharded={"w": True})
    for number, facts in enumerate(steps, 1):
        one = usual | facts
        made.steps[number] = [
            StepFacts(
                number,
                one["losses"],
                (1,) * len(one["losses"]),
                (),
                one["inputs"],
                one.get("clips", ()),
                {},
                0.0,
                0.0,
                scales=one["scales"],
            )
        ]
    for name, value in more.items():
        setattr(made, name, value)
    return made


def causes(original: ArmRecord, candidate: ArmRecord, comparison: Comparison | None = None) -> list[str]:
    found = likely_causes(Evidence(original, candidate, comparison or Comparison()))
    return [cause.code for cause in found]


def apart(step: int, quantity: str, before: float, after: float) -> Comparison:
    """A comparison whose first difference this is."""
    return Comparison([Difference(step, quantity, "rank 0", abs(after - before), 1.0, 0.0, before, after)])


def test_step_that_a_scaler_skips_in_one_arm_is_named_and_data_is_not() -> None:
    skips = {"losses": (1.0, 1.1), "inputs": ("a", "b"), "scales": (65536.0, 32768.0)}
    steps = {"losses": (1.0,), "inputs": ("a",), "scales": (65536.0,)}
    difference = apart(1, "loss", 1.05, 1.0)
    found = causes(arm("FSDP1", skips), arm("FSDP2", steps), difference)
    assert found[:2] == ["scaler-bypassed", "other-passes"] and "different-data" not in found
    start = {**steps, "scales": (1024.0,)}
    assert causes(arm("FSDP1", skips), arm("FSDP2", start), difference)[0] == "scaler-start"
    assert causes(arm("FSDP1", skips), arm("FSDP2", skips), difference) == ["where-to-look"]
    missing = {"losses": (1.0,), "inputs": ("a",)}
    scaled = {**missing, "losses": (float("inf"),), "scales": (4096.0,)}
    assert causes(arm("FSDP1", scaled), arm("FSDP2", missing), difference)[0] == "scaler-missing"
    assert causes(arm("FSDP1", missing), arm("FSDP2", scaled), difference)[0] == "scaler-added"
    of_an_older_program = {**missing, "losses": (4096.0,)}
    scaled["losses"] = (4097.0,)
    assert causes(arm("FSDP1", of_an_older_program), arm("FSDP2", scaled), difference) == ["where-to-look"]


def test_other_number_of_micro_batches_is_no_other_data() -> None:
    two, one = {"losses": (1.0, 1.1), "inputs": ("a", "b")}, {"losses": (1.0,), "inputs": ("a",)}
    difference = apart(1, "loss", 1.05, 1.0)
    assert causes(arm("FSDP1", two), arm("FSDP2", one), difference)[0] == "other-passes"
    other = {"losses": (1.0,), "inputs": ("c",)}
    assert causes(arm("FSDP1", two), arm("FSDP2", other), difference)[0] == "different-data"


def test_norm_of_each_ranks_part_in_the_original_is_named() -> None:
    def two_ranks(kind: str, *norms: float) -> ArmRecord:
        made = arm(kind, {"clips": (Clip("clip_grad_norm_", 1.0, 2.0, norms[0], ()),)}, ranks=2)
        other = arm(kind, {"clips": (Clip("clip_grad_norm_", 1.0, 2.0, norms[1], ()),)})
        made.steps[1] += other.steps[1]
        return made

    difference = apart(1, "gradient norm", 3.0, 5.0)
    assert (
        causes(two_ranks("FSDP1", 3.0, 4.0), two_ranks("FSDP2", 5.0, 5.0), difference)[0] == "norm-of-parts"
    )
    assert "norm-of-parts" not in causes(
        two_ranks("FSDP1", 3.0, 4.0), two_ranks("FSDP2", 7.0, 7.0), difference
    )
    assert "norm-of-parts" not in causes(
        two_ranks("FSDP1", 5.0, 5.0), two_ranks("FSDP2", 5.0, 5.0), difference
    )


def test_norm_of_scaled_gradients_is_named() -> None:
    facts = {"scales": (4096.0,)}
    arms = arm("FSDP1", facts), arm("FSDP2", facts)
    assert causes(*arms, apart(1, "gradient norm", 0.5, 2048.0)) == ["clipped-while-scaled"]
    assert causes(*arms, apart(1, "gradient norm", 2048.0, 0.5)) == ["clipped-while-scaled"]
    assert causes(*arms, apart(1, "gradient norm", 0.5, 0.6)) == ["where-to-look"]


def test_gradients_of_one_arm_alone_are_named_where_nothing_else_is() -> None:
    comparison = apart(2, "loss", 1.0, 1.5)
    comparison.unmatched += [(2, "gradient", "w", "candidate"), (3, "gradient", "v", "candidate")]
    arms = arm("FSDP1", {}, {}), arm("FSDP2", {}, {})
    found = likely_causes(Evidence(*arms, comparison))
    assert [cause.code for cause in found] == ["gradients-missing", "where-to-look"]
    assert "1 parameters get a gradient in step 2 of the original and none in the candidate (w)" in (
        found[0].text
    )


def optimizer(names: str, foreign: int = 0, of_others: int = 0) -> list[OptimizerFacts]:
    return [OptimizerFacts(1, 0, "Adam", dict.fromkeys(names.split(), ()), foreign, of_others)]


def test_optimizer_of_one_of_two_models_built_too_early() -> None:
    """It lacks all of that model, and not a part of all models."""
    shapes = dict.fromkeys(("a", "b", "c", "model2.a", "model2.b"), (2,))
    before = arm("FSDP1", {}, shapes=shapes, optimizers=optimizer("model2.a model2.b"))
    for foreign, of_others, code in (
        (2, 0, "optimizer-before-shard"),
        (1, 0, "optimizer-holds-gathered"),
        (2, 2, "optimizer-of-another-model"),
    ):
        after = arm("FSDP2", {}, shapes=shapes, optimizers=optimizer("", foreign, of_others))
        assert causes(before, after)[0] == code


def test_norm_within_its_limit_is_not_called_unclipped() -> None:
    clip = Clip("clip_grad_norm_", 1.0, 2.0, 0.7, ())
    within = arm("FSDP2", {"clips": (clip,)})
    assert within.within_limits(1)
    assert not arm("FSDP2", {"clips": (Clip("clip_grad_norm_", 0.5, 2.0, 0.7, ()),)}).within_limits(1)
    assert not arm("FSDP2", {}).within_limits(1)


def test_errors_of_parameters_outside_of_a_forward_pass() -> None:
    mixed = "RuntimeError: aten.{} got mixed torch.Tensor and DTensor, need to convert all"
    assert "call its reshard()" in known_errors.meaning(mixed.format("lerp_.Scalar"), "")
    assert "call its reshard()" in known_errors.meaning(mixed.format("_foreach_mul_.ScalarList"), "")
    numpy = "RuntimeError: .numpy() is not supported for tensor subclasses."
    assert ".to_local()" in known_errors.meaning(numpy, "")
    reduced = "Operator c10d.allreduce_.default does not have a sharding strategy registered."
    assert ".full_tensor()" in known_errors.meaning(f"NotImplementedError: {reduced}", "")
    assert "call the module itself" in known_errors.meaning(mixed.format("mm.default"), "")
    assert "parameter group" in known_errors.meaning(mixed.format("addcdiv_.default"), "torch/optim/adam.py")
    dtype = "RuntimeError: attempting to assign a gradient with dtype 'c10::BFloat16' to a tensor"
    assert "first forward pass" in known_errors.meaning(dtype, "")
