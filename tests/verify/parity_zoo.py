"""What the mutation suite plants and what the suite of right conversions runs; see `projects/zoo`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench import Benches

from fsdp_migrate.errors import JobError

Found = Literal["fails", "beware", "raises"]
"""How a mistake is found: the verdict, a warning in its head, or the end of the job."""


@dataclass(frozen=True)
class Mutation:
    """One planted mistake.

    Args:
        mistake: name of a class of `projects/zoo/mistakes.py`; "" where the right program is the mistake.
        options: of both programs.
        found: how.
        code: of the first cause; "" for the other ways.
        words: what the reader is told.
    """

    mistake: str
    options: str
    found: Found
    code: str
    words: str
    ranks: int = 2
    timeout_s: float = 0.0


def fails(mistake: str, options: str, code: str, words: str, ranks: int = 2) -> Mutation:
    return Mutation(mistake, options, "fails", code, words, ranks)


def beware(mistake: str, options: str, words: str, ranks: int = 2) -> Mutation:
    return Mutation(mistake, options, "beware", "", words, ranks)


def raises(mistake: str, options: str, words: str, ranks: int = 2) -> Mutation:
    return Mutation(mistake, options, "raises", "", words, ranks)


def hangs(mistake: str, options: str, words: str) -> Mutation:
    return Mutation(mistake, options, "raises", "", words, timeout_s=12.0)


RESUME = "--resume CHECKPOINT"

MUTATIONS = (
    # the optimizer and what it holds
    fails("optimizer-first", "", "optimizer-before-shard", "holds 14 parameters that are not in the model"),
    fails("optimizer-late", "", "optimizer-holds-gathered", "holds 2 parameters that are not in the model"),
    fails(
        "optimizer-lacks", "", "optimizer-lacks", "2 of 14 parameters are not in the candidate's optimizer"
    ),
    fails("optimizer-kind", "", "optimizer-kind", "SGD in the candidate and AdamW in the original"),
    fails("groups", "--groups", "optimizer-settings", "weight_decay=0.1 in the candidate's"),
    fails("groups-by-name", "", "optimizer-settings", "weight_decay is 0.0 in the candidate's"),
    fails("learning-rate", "", "optimizer-settings", "lr is 0.015 in the candidate's optimizer and 0.01"),
    fails("scheduler-lost", "--scheduler", "optimizer-settings", "lr is 0.01 in the candidate's"),
    fails(
        "zero-grad-lost",
        "",
        "not-zeroed",
        "zero_grad() was called once before step 2 in the original and never",
    ),
    fails("drop-first", "--drop-first --accumulate 2", "unsynced-gradients-kept", "which reduced nothing"),
    # sharding
    fails(
        "root-unsharded",
        "",
        "not-sharded",
        "2 of 14 parameters are not sharded in the candidate (embed.weight",
    ),
    fails("nothing-sharded", "", "not-sharded", "fully_shard was never called"),
    fails("by-ddp", "", "not-sharded", "trained by DistributedDataParallel: every rank keeps all weights"),
    fails("ignored-sharded", "--ignored", "ignored-sharded", "2 parameters that FSDP1 ignored are sharded"),
    fails(
        "ignored-too-much",
        "",
        "not-sharded",
        "1 of 14 parameters are not sharded in the candidate (head.weight",
    ),
    beware("root-only", "", "3 of 4 FSDP units are gone"),
    beware("wrong-units", "--nested", "3 of 7 FSDP units are gone"),
    beware(
        "strategy-lost", "--strategy NO_SHARD", "2 shards and 1 replica in the candidate and in 1 shard and 2"
    ),
    beware(
        "strategy-lost",
        "--strategy HYBRID_SHARD",
        "4 shards and 1 replica in the candidate and in 2 shards",
        4,
    ),
    beware("grad-op-lost", "--strategy SHARD_GRAD_OP", "frees its parameters after forward in the candidate"),
    beware("root-reshards", "", "unit (root) frees its parameters after forward"),
    beware(
        "checkpointing-lost",
        "--checkpointing",
        "activation checkpointing covers 0 modules in the candidate and 3",
    ),
    # how weights start
    fails("broadcast-lost", "--seed-by-rank --sync", "no-broadcast", "only in what rank 1 holds"),
    fails(
        "broadcast-lost",
        "--seed-by-rank --sync --strategy NO_SHARD",
        "no-broadcast",
        "not equal in the candidate from the start",
    ),
    fails("other-seed", "", "initial-weights", "on rank 0 too"),
    fails("meta-uninitialised", "", "uninitialised", "made by to_empty() and never initialised"),
    fails("meta-buffers", "", "buffers-not-filled", "the candidate never filled them"),
    fails(
        "late-init",
        "--init-by-type",
        "class-swapped",
        "all of them inside modules that fully_shard was called on",
    ),
    fails("not-loaded", RESUME, "not-loaded", "the candidate loads none"),
    fails("loaded-under-prefixes", RESUME, "load-unmatched", "keys did not match"),
    fails("optimizer-not-loaded", RESUME, "optimizer-not-loaded", "its state starts anew"),
    fails("shared-step-tensor", RESUME, "optimizer-step-shared", "share one step tensor"),
    fails(
        "thawed",
        "--frozen",
        "trainable",
        "4 parameters are frozen in the original and train in the candidate",
    ),
    fails("thawed", "--lora", "trainable", "are frozen in the original and train in the candidate"),
    fails(
        "frozen-too",
        "",
        "trainable",
        "1 parameters train in the original and are frozen in the candidate (head",
    ),
    fails("untied", "--tied", "untied", "share a weight in the original and are two in the candidate"),
    # dtypes
    fails(
        "casts-inputs",
        "--dtype bf16",
        "input-cast",
        "were bfloat16 in the candidate and bfloat16 and float32",
    ),
    fails(
        "reduce-dtype", "--dtype bf16", "precision", "reduce_dtype is bfloat16 in the candidate and float32"
    ),
    fails("policy-lost", "--dtype bf16", "precision", "param_dtype is not set in the candidate and bfloat16"),
    fails("weights-in-bf16", "--dtype bf16", "initial-dtype", "is bfloat16 in the candidate and float32"),
    fails(
        "reduce-dtype",
        "--dtype bf16 --accumulate 2",
        "precision",
        "reduce_dtype is bfloat16 in the candidate",
    ),
    fails("clip-limit", "--clip 50 --dtype bf16 --accumulate 2", "clip-arguments", "max_norm 1 in the"),
    fails("double", "", "initial-dtype", "is float64 in the candidate and float32"),
    fails("buffers-not-cast", "--buffers-bf16", "buffers", "it is float32 in the candidate and bfloat16"),
    fails("norm-in-bf16", "--dtype bf16 --norm --norm-unit", "precision", "blocks.0.norm"),
    fails("autocast-spans-steps", "--autocast", "autocast-cache", "keeps the weights it cast in the first"),
    # gradients
    fails(
        "sync-always",
        "--accumulate 3",
        "no-sync-dropped",
        "reduced 3 times per step in the candidate and once",
    ),
    fails("sync-first", "--accumulate 2", "sync-in-another-pass", "in backward pass 1 of 2 in the candidate"),
    fails("loss-by-rank", "--accumulate 2", "loss-per-rank", "another one on every rank (0.9, 1.1)"),
    fails("sync-never", "", "sync-missing", "reduced never per step in the candidate and once"),
    fails("loss-not-divided", "--accumulate 2", "loss-scale", "is 2 times the original's in step 1"),
    fails("loss-times-ranks", "", "loss-scale", "is 2 times the original's in step 1"),
    fails("other-loss", "", "other-loss", "and so is what the model returns"),
    fails("other-loss-later", "", "other-loss", "(a sample of it, bit for bit): the loss differs"),
    fails("zero-grad-early", "--clip 0.3", "gradients-dropped", "the optimizer is given no gradients"),
    fails("summed-not-averaged", "", "gradient-scale", "averaged over another number"),
    fails("unused-get-nothing", "--unused", "unused-parameters", "spare.bias"),
    fails("not-clipped", "--clip 0.3", "not-clipped", "the candidate did not"),
    fails("clip-guarded", "--clip 0.3", "not-clipped", "the candidate did not"),
    beware("not-clipped", "--clip 50", "clipping may be missing"),
    fails("local-norm", "--clip 0.3", "local-norm", "its factor differs by rank"),
    fails("local-norm-by-torch", "--clip 0.3", "local-norm", "its norm differs by rank"),
    fails("local-norm-by-torch", "--clip 0.3 --pure-bf16", "local-norm", "its norm differs by rank"),
    fails("clip-limit", "--clip 0.3", "clip-arguments", "max_norm 1 in the candidate and 0.3"),
    fails(
        "clip-norm-type",
        "--clip 0.05 --norm-type inf",
        "clip-arguments",
        "norm_type 2 in the candidate and inf",
    ),
    fails(
        "clip-first-unit-only",
        "--clip 0.3",
        "norm-of-some",
        "is that of blocks.0 (4 of 14 gradients)",
    ),
    fails("clips-elements", "--clip 0.3", "limits-elements", "limited to 0.01 in step 1 of the candidate"),
    # data, mode, random numbers, the loop itself
    fails("other-data", "", "different-data", "other inputs in step 1"),
    fails("same-data-on-every-rank", "", "same-data", "every rank of the candidate is given the same inputs"),
    fails(
        "stays-in-eval",
        "--evaluate --dropout",
        "evaluation-mode",
        "modules are in evaluation mode in the candidate",
    ),
    fails("draws-more", "--dropout", "random-state", "in another state when the model is called in step 2"),
    fails("seeds-by-rank", "--dropout", "random-state", "seeds each rank with its own number, and the"),
    fails("other-dropout", "--dropout", "other-forward", "inputs are equal: blocks.0 returns something else"),
    fails("other-statistics", "--bn", "batch-statistics", "Their momentum"),
    fails("stops-early", "", "steps", "made 3 optimizer steps and the candidate 2"),
    fails("write-lost", "--write", "outside-write", "between steps 1 and 2 the original changed 14 weights"),
    fails(
        "write-skipped", "--write", "outside-write", "between steps 1 and 2 the original changed 14 weights"
    ),
    fails("average-of-early-list", "--ema", "other-model", "weights of a model that is only called without"),
    fails("average-in-bf16", "--ema", "other-model", "its weights are bfloat16 in the candidate and float32"),
    fails("average-without-policy", "--ema --dtype bf16", "precision", "unit other1"),
    # saving and showing
    fails("saves-shards", "--save", "saved-shards", "torch.save was given only rank 0's part of 14 tensors"),
    fails(
        "saves-raw-optimizer",
        "--save --save-optim",
        "saved-shards",
        "torch.save was given only rank 0's part",
    ),
    fails("saves-other-names", "--save", "saved-names", "has other keys"),
    fails("counts-one-more", "--save", "saved-numbers", "epoch of what is saved after step 2 is 2 in"),
    beware("saves-nothing", "--save", "saved tensors 1 times and the candidate 0"),
    beware("shows-local-norm", "--show", "the job prints or writes other numbers: grad norm"),
    beware("shows-count-times-ranks", "--show", "the job prints or writes other numbers"),
    beware("shows-dtensor", "--show --clip 0.3", "prints a DTensor where the original printed a number"),
    # what raises
    raises("parent-first", "--nested", "children before parents"),
    raises("tied-apart", "--tied", "one group"),
    raises("shards-twice", "", "called twice on the same module"),
    raises("shards-container", "", "has no forward of its own"),
    raises("calls-forward", "", "call the module itself"),
    raises("clip-method", "--clip 0.3", "torch.nn.utils.clip_grad_norm_"),
    raises("no-sync-method", "--accumulate 2", "set_requires_gradient_sync"),
    raises("formats-norm", "--show --clip 0.3", "full_tensor()"),
    raises("loads-plain", RESUME, "set_model_state_dict"),
    raises("unnamed-mesh", "--strategy HYBRID_SHARD", "mesh_dim_names", 4),
    raises("policy-on-root-alone", "--dtype bf16", "in another dtype than the weights"),
    raises("mixed-optimizer", "--ignored", "parameter group of their own"),
    raises("skips-parameters", "", "take no part in the loss on some ranks"),
    hangs("gathers-on-rank-zero", "--write", "rank 1: "),
    hangs("skips-module", "", "for blocks.1 (forward)"),
)
"""Every silent trap of FSDP2 that is known, and what people got wrong in migrations that they published."""


@dataclass(frozen=True)
class Right:
    """One right conversion; `exact` where the arms are expected to be equal to the last bit."""

    options: str
    ranks: int = 2
    exact: bool = True


RIGHT = (
    Right("", 1),
    Right("--dtype bf16 --clip 0.3", 1, exact=False),
    Right(""),
    Right("--dtype bf16"),
    Right("--dtype bf16 --reduce bf16 --accumulate 2"),
    Right("--dtype bf16 --accumulate 2 --clip 0.3", exact=False),
    Right("--dtype fp16 --reduce fp16 --scaler --optimizer sgd"),
    Right("--dtype fp16 --reduce fp32 --scaler --clip 0.3", exact=False),
    Right("--accumulate 3 --clip 0.3 --optimizer sgd", exact=False),
    Right("--clip 0.05 --norm-type inf", exact=False),
    Right("--tied --flat"),
    Right("--frozen --optimizer adagrad"),
    Right("--lora --checkpointing --dtype bf16"),
    Right("--uneven --optimizer rmsprop"),
    Right("--unused --optimizer nadam"),
    Right("--ignored"),
    Right("--bn --evaluate"),
    Right("--dropout --norm --nested"),
    Right("--strategy SHARD_GRAD_OP --accumulate 2"),
    Right("--strategy NO_SHARD --seed-by-rank --sync"),
    Right("--offload --optimizer adamax"),
    Right("--compile --norm"),
    Right("--autocast --optimizer adadelta"),
    Right("--groups --scheduler"),
    Right("--dtype bf16 --norm --norm-unit"),
    Right("--buffers-bf16 --dtype bf16"),
    Right("--save --save-optim --show --write --ema"),
    Right(RESUME),
    Right("--pure-bf16 --clip 0.3 --optimizer sgd", exact=False),
    Right("--drop-first"),
    Right("--uneven --clip 0.3", 3, exact=False),
    Right("--dtype bf16 --reduce bf16 --tied", 3),
    Right("--strategy HYBRID_SHARD --dtype bf16", 4),
    Right("--strategy _HYBRID_SHARD_ZERO2 --accumulate 2", 4),
    Right("--optimizer adam --seed-by-rank --sync", 4),
    Right("--uneven --dtype bf16", 8),
)
"""Conversions without a mistake, over what real jobs use."""


@dataclass(frozen=True)
class Result:
    """What a verification of one mutation said."""

    how: str
    code: str
    words: str
    remedy: str


def found(zoo: Benches, mutation: Mutation) -> Result:
    """Run a mutation."""
    mistake = "" if mutation.mistake == "drop-first" else mutation.mistake  # the right code is the mistake
    try:
        report = zoo.verdict(mutation.options, mutation.ranks, mistake, mutation.timeout_s)
    except JobError as error:
        return Result("raises", "", f"{error.message}\n{error.hint}", error.hint)
    if report.passed:
        words = "\n".join(report.warnings)
        return Result("beware" if report.warnings else "passes", "", words, words)
    first = report.causes[0] if report.causes else None
    words = "\n".join(one.text for one in report.causes[:1])
    return Result("fails", first.code if first else "", words, first.remedy if first else "")
