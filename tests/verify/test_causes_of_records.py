"""Causes named from records made by hand, of mistakes that need a particular step to show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fsdp_migrate.verify import known_errors
from fsdp_migrate.verify.answer import Answer
from fsdp_migrate.verify.causes import likely_causes
from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.layout_warnings import layout_warnings
from fsdp_migrate.verify.model import ANSWER, CLIPPED, SAVED, Difference, Outcome
from fsdp_migrate.verify.own_parts import leave_out_own_parts
from fsdp_migrate.verify.record import ArmRecord, Clip, Load, OptimizerFacts, Part, Save, StepFacts, Unit
from fsdp_migrate.verify.saved_numbers import saved_numbers_check


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


def parts(values: list[float], name: str = "w", dtype: str = "float32") -> dict[str, list[Part]]:
    """A tensor that rank 0 holds."""
    stored = np.array(values, np.float32)
    return {name: [Part(0, name, dtype, stored.shape, stored.size, 0, None, stored, None)]}


def first_is(step: int, quantity: str, name: str = "w") -> Comparison:
    return Comparison([Difference(step, quantity, name, 1.0, 1.0, 0.0, 1.0, 2.0)])


@pytest.mark.parametrize(
    ("before", "after", "code", "words"),
    [
        ([0.5, 0.25, -0.5], [1.0, 0.25, -2.0], "elements-not-limited", "limited to 0.5 in step 1"),
        ([0.5, 0.25, -0.5], [0.75, 0.25, -0.75], "elements-not-limited", "and to 0.75 in the candidate"),
        ([0.5, 0.125, -1.0], [0.75, 0.25, -0.75], "limits-elements", "limited to 0.75 in step 1 of the"),
        ([0.5, 0.25, -0.5], [0.5, 0.125, -1.0], "elements-not-limited", "not to that in the candidate"),
        ([0.5, 0.125, -1.0], [0.25, 0.0625, -0.5], "gradient-scale", "gets in step 1 are 0.5 times the"),
        ([0.5, 0.125, -1.0], [0.25, 0.125, -0.5], "where-to-look", "differ when the optimizer gets them"),
        ([0.501, 0.25, -0.501], [0.5, 0.25, -0.5], "where-to-look", "differ when the"),  # 0.501 in bfloat16
    ],
)
def test_limit_of_every_element_by_itself_is_read_off_the_gradients(
    before: list[float], after: list[float], code: str, words: str
) -> None:
    gradient = {(1, "gradient"): parts([1.0, 0.25, -2.0])}
    made = [arm(kind, {}, parts=dict(gradient)) for kind in ("FSDP1", "FSDP2")]
    for record, clipped in zip(made, (before, after), strict=True):
        record.parts[1, CLIPPED] = parts(clipped)
    found = likely_causes(Evidence(made[0], made[1], first_is(1, CLIPPED)))
    assert found[0].code == code and words in found[0].text


def test_what_is_added_to_clipped_gradients_is_no_norm_of_each_rank() -> None:
    """A term that is added after clipping makes another factor on every rank, in both programs."""
    clip = {"clips": (Clip("clip_grad_norm_", 1.0, 2.0, 2.0, ()),)}

    def two_ranks(kind: str, first: list[float], second: list[float]) -> ArmRecord:
        made = arm(kind, clip, ranks=2, shapes={"w": (4,)})
        made.steps[1] += arm(kind, clip).steps[1]
        for quantity, halves in (("gradient", ([2.0, 0.0], [0.0, 2.0])), (CLIPPED, (first, second))):
            made.parts[1, quantity] = {"w": []}
            for rank, half in enumerate(halves):
                stored = np.array(half, np.float32)
                part = Part(rank, "w", "float32", (4,), 2, 2 * rank, None, stored, None)
                made.parts[1, quantity]["w"].append(part)
        return made

    original = two_ranks("FSDP1", [1.0, 0.02], [0.02, 1.0])
    adds_more = two_ranks("FSDP2", [1.01, 0.2], [0.2, 1.02])
    assert causes(original, adds_more, first_is(1, CLIPPED)) == ["where-to-look"]
    by_rank = two_ranks("FSDP2", [1.0, 0.0], [0.0, 1.5])
    assert causes(original, by_rank, first_is(1, CLIPPED)) == ["local-norm"]


def test_losses_that_are_all_multiplied_are_named_whatever_their_gradients_round_to() -> None:
    steps = [{"losses": losses} for losses in ((1.0, 3.0), (2.0, 6.0), (2.0, 5.0))]
    original, doubled, other = (arm(f"FSDP{2 if at else 1}", step) for at, step in enumerate(steps))
    found = likely_causes(Evidence(original, doubled, apart(1, "loss", 4.0, 8.0)))
    assert found[0].code == "loss-scale" and "is 2 times the original's in step 1" in found[0].text
    assert causes(original, other, apart(1, "loss", 4.0, 7.0)) == ["where-to-look"]


def test_place_of_a_loss_that_differs_is_where_outputs_part() -> None:
    seen = {"blocks.0": "a", "blocks.1": "b", "": "c"}
    for change, code, words in (
        ({}, "other-loss", "and so is what the model returns"),
        ({"blocks.1": "x", "": "y"}, "other-forward", "blocks.1 returns something else on rank 0"),
        ({"": "y"}, "other-forward", "after its units have agreed"),
    ):
        arms = arm("FSDP1", {}, outputs={0: seen}), arm("FSDP2", {}, outputs={0: seen | change})
        (found,) = likely_causes(Evidence(*arms, apart(1, "loss", 1.0, 1.5)))
        assert found.code == code and words in found.text
        assert ("compared bit for bit" in found.text) == (code == "other-forward")
        assert ("the loss function and its arguments" in found.remedy) == ("blocks.1" not in change)
    later = arm("FSDP1", {}, {}, outputs={0: seen}), arm("FSDP2", {}, {}, outputs={0: seen})
    assert causes(*later, apart(2, "loss", 1.0, 1.5)) == ["where-to-look"]  # they are of the first step
    for made in later:
        made.steps[2] = [replace(made.steps[2][0], outputs=("d",))]
    (found,) = likely_causes(Evidence(*later, apart(2, "loss", 1.0, 1.5)))
    assert found.code == "other-loss" and "weights of terms that are warmed up" in found.remedy
    later[1].steps[2] = [replace(later[1].steps[2][0], outputs=("e",))]
    assert causes(*later, apart(2, "loss", 1.0, 1.5)) == ["where-to-look"]
    older = arm("FSDP1", {}), arm("FSDP2", {}, outputs={0: seen})
    assert causes(*older, apart(1, "loss", 1.0, 1.5)) == ["where-to-look"]


@pytest.mark.parametrize(
    ("key", "before", "after", "named"),
    [
        ("epoch", 3, 4, True),
        ("trainer.global_step", 100, 0, True),
        ("scheduler.last_epoch", 2, 3, True),
        ("scheduler._last_lr.0", 1e-3, 1.0001e-3, True),
        ("optimizer.param_groups.0.betas.1", 0.999, 0.95, True),
        ("loops.learning_rate", 0.1, 0.2, True),
        ("loops.learning_rate", 0.1, 0.1 * (1 + 1e-15), False),
        ("samples_seen", 64, 32, True),
        ("train_time.step", 1.5, 2.5, False),
        ("time_per_step", 1.5, 2.5, False),
        ("steps_per_second", 1.5, 2.5, False),
        ("rng.step", 1, 2, False),
        ("timestamp", 1.0, 2.0, False),
        ("best_loss", 1.0, 2.0, False),
        ("seed", 1, 2, False),
        ("elapsed", 1, 2, False),
        ("0.1", 1, 2, False),
    ],
)
def test_counts_and_settings_that_are_saved_are_equal(
    key: str, before: float, after: float, named: bool
) -> None:
    arms = arm("FSDP1", {}), arm("FSDP2", {})
    for made, value in zip(arms, (before, after), strict=True):
        made.saved_numbers[0] = [(1, {key: value, "epoch ": 1, "only": 2})]
    (check,) = saved_numbers_check(*arms) or (None,)
    assert (check is not None and check.outcome is Outcome.DIFFERS) == named
    assert ("saved-numbers" in causes(*arms)) == named
    if named and check is not None:
        assert f"{key} of what is saved after step 1 is {after:.12g} in the candidate" in check.detail
    arms[1].saved_numbers[0] *= 2  # files that cannot be told apart
    assert saved_numbers_check(*arms) == []


def test_weights_that_an_optimizer_without_eps_made_no_numbers() -> None:
    """An optimizer state that is asked for before the first step makes a step with gradients of zeros."""
    settings = {"w": (("eps", 0.0),)}
    more = {
        "loads": [Load(0, "optimizer", 0)],
        "optimizers": [OptimizerFacts(1, 0, "Adam", settings, 0)],
    }
    before, after = arm("FSDP1", {}, **more), arm("FSDP2", {}, **more)
    before.parts[0, "weight"], after.parts[0, "weight"] = parts([1.0, 2.0]), parts([float("nan")] * 2)
    assert causes(before, after, first_is(0, "weight"))[0] == "zero-eps"
    settings["w"] = (("eps", 1e-8),)
    assert causes(before, after, first_is(0, "weight"))[0] == "uninitialised"


def test_keys_that_match_in_the_candidate_alone() -> None:
    before, after = (
        arm("FSDP1", {}, loads=[Load(0, "model", 2)]),
        arm("FSDP2", {}, loads=[Load(0, "model", 0)]),
    )
    before.parts[0, "weight"], after.parts[0, "weight"] = parts([1.0, 2.0]), parts([1.0, 3.0])
    (found,) = likely_causes(Evidence(before, after, first_is(0, "weight")))
    assert found.code == "load-unmatched" and "2 keys did not match when the original loaded" in found.text


@pytest.mark.parametrize("sparse", [set(), {3}], ids=["looked at", "not looked at by one"])
def test_writes_outside_of_the_optimizer_are_compared_where_both_looked(sparse: set[int]) -> None:
    """Of a large model not every step is looked at, and an older program looked at all of them."""
    before, after = arm("FSDP1", {}, {}, {}), arm("FSDP2", {}, {}, {}, sparse=sparse)
    before.steps[3] = [replace(before.steps[3][0], rewritten=("w",))]
    found = causes(before, after, apart(3, "loss", 1.0, 2.0))
    assert ("outside-write" in found) is not bool(sparse)


def test_dtype_of_buffers_is_told_in_both_directions() -> None:
    wide, half = parts([1.0], "freq"), parts([1.5], "freq", "bfloat16")
    for before, after, words in ((half, wide, "FSDP1 casts buffers"), (wide, half, "was cast as a whole")):
        arms = arm("FSDP1", {}), arm("FSDP2", {})
        for record, tensors in zip(arms, (before, after), strict=True):
            record.parts[0, "buffer"] = tensors
        (found,) = likely_causes(Evidence(*arms, first_is(0, "buffer", "freq (rank 0)")))
        assert found.code == "buffers" and words in found.text


def test_other_inputs_of_the_first_step_come_before_the_statistics_that_they_make() -> None:
    comparison = first_is(0, "buffer", "bn.running_mean (rank 0)")
    before, after = arm("FSDP1", {"inputs": ("a",)}), arm("FSDP2", {"inputs": ("b",)})
    for record, value in ((before, 1.0), (after, 2.0)):
        record.parts[0, "buffer"] = parts([value], "bn.running_mean")
    assert causes(before, after, comparison) == ["different-data", "batch-statistics"]
    after.steps = before.steps
    assert causes(before, after, comparison) == ["batch-statistics"]


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
    meshes = "RuntimeError: All operands in aten.stack.default must have the same mesh"
    assert "mesh by mesh" in known_errors.meaning(meshes, "")
    inside = 'File "torch/distributed/tensor/_dispatch.py", line 531, in _dispatch\n    raise AssertionError'
    assert "changed in place by a DTensor" in known_errors.meaning("AssertionError: ", inside)
    assert known_errors.meaning("AssertionError: ", "train.py") == ""
    assert "first forward pass" in known_errors.meaning(dtype, "")


def test_call_that_one_arm_does_not_make_comes_first_where_nothing_differs_before_it() -> None:
    answers = [Answer(1, 0, "model1", 1, "x", 0)]
    before, after = arm("FSDP1", {}, {}), arm("FSDP2", {}, {"inputs": ("b",)}, answers=answers)
    assert causes(before, after, apart(2, "loss", 1.0, 2.0)) == ["calls-gone", "different-data"]
    assert causes(before, after, apart(1, "loss", 1.0, 2.0))[-1] == "calls-gone"
    assert causes(before, after, apart(2, "weight of another model", 1.0, 2.0))[-1] == "calls-gone"


def answered(kind: str, *calls: tuple[int, str], random: str = "s") -> ArmRecord:
    """Two steps, and calls without gradients: (modules in training mode, random state) before each step."""
    made = arm(
        kind, {}, {}, answers=[Answer(at, 0, "other1", 1, "x", *call) for at, call in enumerate(calls)]
    )
    made.steps[2] = [replace(made.steps[2][0], random=random)]
    return made


@pytest.mark.parametrize(
    ("quantity", "calls", "random", "code"),
    [
        (ANSWER, [(0, "r"), (0, "r")], "s", "answers-differ"),
        (ANSWER, [(0, "r"), (0, "q")], "s", "random-state"),
        (ANSWER, [(0, "r"), (0, "")], "s", "answers-differ"),  # an older program did not record it
        (ANSWER, [(0, "r"), (5, "r")], "s", "evaluated-in-training-mode"),
        (ANSWER, [(5, "r"), (0, "q")], "s", "evaluated-in-training-mode"),  # which drew numbers before it
        ("loss", [(0, "r"), (0, "r")], "s", "where-to-look"),
        ("loss", [(0, "r"), (0, "r")], "q", "random-state"),
        ("loss", [(0, "r"), (5, "r")], "q", "evaluated-in-training-mode"),
        ("loss", [(0, "r"), (5, "r")], "s", "where-to-look"),  # it drew nothing: no reason of this loss
    ],
)
def test_random_numbers_and_mode_of_models_that_are_called_without_gradients(
    quantity: str, calls: list[tuple[int, str]], random: str, code: str
) -> None:
    before = answered("FSDP1", (0, "r"), (0, "r"))
    after = answered("FSDP2", *calls, random=random)
    name = "other1, call 1, rank 0, output 1"
    comparison = first_is(1 if quantity == ANSWER else 2, quantity, name)
    assert causes(before, after, comparison)[0] == code


def test_dtype_of_an_encoder_comes_before_the_data_that_it_makes() -> None:
    before, after = arm("FSDP1", {"inputs": ("a",)}), arm("FSDP2", {"inputs": ("b",)})
    for record, dtype in ((before, "float32"), (after, "bfloat16")):
        record.parts[1, "weight of another model"] = parts([1.0], "other1.w", dtype)
    found = likely_causes(Evidence(before, after, apart(1, "loss", 1.0, 2.0)))
    assert [cause.code for cause in found] == ["other-model", "different-data"]
    assert "its weights are bfloat16 in the candidate and float32" in found[0].text


def test_teacher_that_no_rank_broadcasts_needs_no_reduction() -> None:
    comparison = Comparison(replicas_differ=[("candidate", 1, "weight of another model", "other1.w", (1,))])
    (found, *_) = likely_causes(Evidence(arm("FSDP1", {}), arm("FSDP2", {}), comparison))
    assert found.code == "no-broadcast" and "no longer sharded" in found.text


def test_other_passes_that_reduce_are_no_lost_no_sync() -> None:
    def reducing(kind: str, *passes: int) -> ArmRecord:
        made = arm(kind, {"losses": (1.0,) * len(passes)})
        made.steps[1] = [replace(made.steps[1][0], reductions=passes)]
        return made

    for passes, code in (
        ((0, 0, 1), ""),
        ((1, 1, 0), "sync-in-another-pass"),
        ((1, 0, 0), "sync-in-another-pass"),
        ((1, 1, 1), "no-sync-dropped"),
        ((0, 0, 0), "sync-missing"),
    ):
        found = causes(reducing("FSDP1", 0, 0, 1), reducing("FSDP2", *passes))
        assert found == [code] * bool(code)


def test_term_that_is_nearly_the_same_part_of_every_loss_is_no_factor() -> None:
    """An auxiliary loss that is lost; gradients do not follow it as they follow a factor."""
    for gradient, code in (([0.98, -1.96], "loss-scale"), ([1.0, -2.0], "where-to-look")):
        before, after = arm("FSDP1", {"losses": (1.0, 3.0)}), arm("FSDP2", {"losses": (0.98, 2.94)})
        before.parts[1, "gradient"], after.parts[1, "gradient"] = parts([1.0, -2.0]), parts(gradient)
        assert causes(before, after, apart(1, "loss", 4.0, 3.92))[0] == code


@pytest.mark.parametrize(
    ("norm", "kind", "scale", "words"),
    [
        (5.0, 2.0, (), "that of blocks (2 of 4 gradients)"),
        (13.0, 2.0, (), "that of all but blocks (2 of 4 gradients)"),
        (4.0, float("inf"), (), "that of blocks (2 of 4 gradients)"),
        (5.0 / 64, 2.0, (64.0,), "that of blocks (2 of 4 gradients)"),
        (178**0.5, 2.0, (), "that of matrices alone (3 of 4 gradients)"),
        (0.0, 2.0, (), "in step 1 is 0, and its gradients are not"),
        (194**0.5, 2.0, (), ""),  # of all: another reason
        (6.5, 2.0, (), ""),
    ],
)
def test_norm_of_some_gradients_is_told_by_itself(
    norm: float, kind: float, scale: tuple[float, ...], words: str
) -> None:
    gradients = {"embed.w": 12.0, "head.w": 5.0, "blocks.w": 3.0, "blocks.b": 4.0}
    facts = {"clips": (Clip("clip_grad_norm_", 100.0, kind, norm, ()),), "scales": scale}
    shapes = {name: (1,) if name.endswith("b") else (1, 1) for name in gradients}
    before, after = (arm(f"FSDP{at}", facts, shapes=shapes) for at in (1, 2))
    after.parts[1, "gradient"] = {name: parts([value], name)[name] for name, value in gradients.items()}
    difference = Difference(1, "gradient norm", "rank 0", 1.0, 1.0, 0.0, 194**0.5, norm)
    found = likely_causes(Evidence(before, after, Comparison([difference])))
    code = "norm-of-some" if norm else "norm-of-nothing"
    assert (found[0].code == code) is bool(words) and words in found[0].text


def test_factor_of_all_gradients_is_told_where_it_comes_about() -> None:
    for quantity, words in (
        ("gradient", "all gradients of step 1 are 4 times the original's"),
        (CLIPPED, "that the optimizer gets in step 1 are 4 times the original's"),
    ):
        before, after = arm("FSDP1", {}), arm("FSDP2", {})
        before.parts[1, quantity], after.parts[1, quantity] = parts([1.0, -2.0]), parts([4.0, -8.0])
        found = likely_causes(Evidence(before, after, first_is(1, quantity)))
        assert found[0].code == "gradient-scale" and words in found[0].text
        after.parts[1, quantity] = parts([4.0, -2.0])
        assert causes(before, after, first_is(1, quantity)) == ["where-to-look"]


@pytest.mark.parametrize(
    ("layout", "code"),
    [
        ((2, 1), "part-of-mesh"),
        ((1, 2), "part-of-mesh"),
        ((2, 0), "part-of-mesh"),
        ((4, 1), "replicas-differ"),
    ],
)
def test_unit_that_is_given_a_part_of_the_mesh_is_named_first(layout: tuple[int, int], code: str) -> None:
    arms = [
        arm(kind, {}, units=[Unit("a", kind, "", "", False, "", *of)])
        for kind, of in (("FSDP1", (2, 2)), ("FSDP2", layout))
    ]
    comparison = Comparison(replicas_differ=[("candidate", 1, "gradient", "w", (2, 3))])
    found = likely_causes(Evidence(arms[0], arms[1], comparison))
    assert found[0].code == code
    assert ("is kept by 2 ranks in the candidate and by 4" in found[0].text) is (code == "part-of-mesh")


def test_other_modules_under_checkpointing_are_a_warning() -> None:
    blocks, layers = ["blocks.0", "blocks.1"], ["blocks.0.mlp", "blocks.1.mlp"]
    for before, after, words in (
        (blocks, blocks, ""),
        (
            blocks,
            layers,
            "covers other modules: blocks.0, blocks.1 in the original (2 of 2) and blocks.0.mlp",
        ),
        (blocks, [], "covers 0 modules in the candidate and 2 in the original"),
        ([], layers, ""),
    ):
        arms = [
            arm(kind, {}, checkpointed=len(names), checkpointing=names)
            for kind, names in (("FSDP1", before), ("FSDP2", after))
        ]
        said = "\n".join(layout_warnings(arms[0], arms[1]))
        assert words in said and bool(said) is bool(words)


def test_seeds_are_told_from_numbers_that_were_drawn() -> None:
    def ranks(kind: str, *random: str) -> ArmRecord:
        made = arm(kind, {}, ranks=len(random))
        made.steps[1] = [replace(made.steps[1][0], random=one) for one in random]
        return made

    for before, after, words in (
        ("ab", "aa", "seeds every rank with the same number, and the original each rank with its own"),
        ("aa", "ab", "seeds each rank with its own number, and the original every rank with the same"),
        ("ab", "cd", "has drawn more or fewer before, or is seeded otherwise"),
    ):
        evidence = Evidence(ranks("FSDP1", *before), ranks("FSDP2", *after), apart(1, "loss", 1.0, 2.0))
        (found,) = likely_causes(evidence)
        assert found.code == "random-state" and words in found.text


def test_own_parts_are_known_by_names_with_fsdp1_wrappers_in_them() -> None:
    """A dictionary made of `named_parameters()`, which every rank saves: other names, and other parts."""
    old, new = "shadow._fsdp_wrapped_module.layer.weight", "shadow.layer.weight"
    parts = [
        Part(rank, f"file 1, {old}", "float32", (5 - rank,), 5 - rank, 0, None, None, None) for rank in (0, 1)
    ]
    original = ArmRecord(
        ranks=2,
        saves=[Save(1, rank, (old, "decay"), ()) for rank in (0, 1)],
        parts={(1, SAVED): {f"file 1, {old}": parts}},
    )
    candidate = ArmRecord(ranks=2, saves=[Save(1, rank, (new, "decay"), (new,)) for rank in (0, 1)])
    notices = leave_out_own_parts(original, candidate)
    assert len(notices) == 1
    assert "1 tensors of a file that every rank saves after step 1 are the rank's own part" in notices[0]
    assert original.parts == {(1, SAVED): {}}
    assert [one.names for one in (*original.saves, *candidate.saves)] == [("decay",)] * 4
    assert all(one.partial == () for one in candidate.saves)
