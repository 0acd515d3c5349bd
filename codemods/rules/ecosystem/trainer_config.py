"""Transformers trainers configured by YAML or JSON files."""

from __future__ import annotations

from collections.abc import Iterator

from codemods.configuration.blocks import block_edits, block_findings
from codemods.configuration.edits import add_entries, remove_entries, set_value, written
from codemods.configuration.named import shared_settings, with_settings
from codemods.configuration.rule import Surroundings, config_rule, found_at
from codemods.configuration.settings import Decisions, bare
from codemods.configuration.trainer import (
    SMOOTHING,
    SMOOTHS,
    Asked,
    beyond_defaults,
    is_axolotl,
    is_fsdp1,
    is_trainer_config,
    smooths,
    to_fsdp2,
    words_of,
)
from codemods.configuration.tree import ConfigFile, Entry, Mapping, Scalar
from codemods.model import Edit, Finding, Safety, Span

_TELLING = frozenset(
    {
        "per_device_train_batch_size",
        "per_device_eval_batch_size",
        "num_train_epochs",
        "lr_scheduler_type",
        "evaluation_strategy",
        "eval_strategy",
        "save_strategy",
        "do_train",
        "do_eval",
        "ddp_timeout",
        "warmup_ratio",
        "gradient_accumulation_steps",
        "output_dir",
    }
)
"""Names of `TrainingArguments`; two of them beside `fsdp` tell a trainer's file from another program's."""
_FORMER = ("fsdp_transformer_layer_cls_to_wrap", "fsdp_min_num_params")

CODES = {
    "FM610": "a trainer's FSDP settings become FSDP2's",
    "FM611": "a layout that the trainer's FSDP2 does not have, or needs a mesh for",
    "FM612": "a trainer's FSDP settings of which a part stands elsewhere",
    "FM613": "a trainer's setting whose effect ends or begins",
}


@config_rule("fsdp", CODES)
def trainer_config(file: ConfigFile, around: Surroundings) -> Iterator[Finding]:
    """`fsdp: "full_shard auto_wrap"` of a Transformers trainer becomes `fsdp: true` and an FSDP2
    `fsdp_config`.

    What the string said moves into `fsdp_config`, where FSDP2's trainer reads it: `full_shard` and
    `shard_grad_op` become `reshard_after_forward`, `offload` becomes `cpu_offload`, and how modules are
    wrapped is written out, because the default changes: FSDP1 wrapped nothing without `auto_wrap`, FSDP2
    wraps the model's layers unless `auto_wrap_policy` says otherwise. `fsdp_transformer_layer_cls_to_wrap`
    and `fsdp_min_num_params` move there as well; Transformers 5 has no such arguments. `backward_prefetch`,
    `forward_prefetch`, `limit_all_gathers`, `use_orig_params` and `sync_module_states` go.

    `label_smoothing_factor` is left to you (FM617, `explain TrainingArguments`).

    `hybrid_shard` needs the sizes of a mesh, `no_shard` is DDP: both are left to you. Settings for XLA are
    not touched, nor are files that merely have a key of that name: a trainer's file is known by its other
    arguments, a file that holds an `fsdp_config` alone by having no other keys.

    A file that scripts, configurations or calls name changes together with all of them, or not at all.

    The result is for a Transformers 5 whose `fsdp_config` defaults to version 2.
    """
    for root in file.roots:
        if not isinstance(root, Mapping):
            continue
        for mapping in root.mappings():
            if len(_TELLING & set(mapping.value)) >= 2 and not is_axolotl(mapping.value):
                config = mapping.value.get("fsdp_config")
                keys = shared_settings(file.path, config) if isinstance(config, str) else frozenset()
                yield from with_settings(_trainer(file, mapping), keys)
        if file.kind == "json" and _is_alone(file, root, around):
            yield from _alone(file, root)


def _is_alone(file: ConfigFile, root: Mapping, around: Surroundings) -> bool:
    named = file.path in around.named_as_trainer
    settings = {bare(key): value for key, value in root.value.items()}
    return is_trainer_config(root.value) or (named and bool(root.entries) and is_fsdp1(settings))


def _alone(file: ConfigFile, root: Mapping) -> Iterator[Finding]:
    done = to_fsdp2(root.value, None)
    for remark in done.remarks:
        at = root.get(remark.key)
        span = at.span if at else root.entries[0].key_span
        yield found_at(file, span, remark.code, remark.message, remedy=remark.remedy, is_note=remark.is_note)
    if not done.blocked:
        yield found_at(
            file,
            root.entries[0].key_span,
            "FM610",
            "this `fsdp_config` of a trainer becomes FSDP2's",
            safety=Safety.SAFE,
            edits=block_edits(file, root, done),
        )


def _trainer(file: ConfigFile, mapping: Mapping) -> Iterator[Finding]:
    fsdp, config = mapping.get("fsdp"), mapping.get("fsdp_config")
    block = config.node if config is not None and isinstance(config.node, Mapping) else None
    words = words_of(fsdp.value) if fsdp is not None else None
    if fsdp is None or words is None:
        former = [mapping.get(key) for key in _FORMER]
        telling = (
            block is not None and is_trainer_config(block.value) and (fsdp is None or fsdp.value is True)
        )
        if fsdp is None and not any(former) and block is None:
            return
        if telling and config is not None and block is not None:
            yield from block_findings(file, config, block, to_fsdp2(block.value, None), "FM610")
        return
    if block is not None and not is_fsdp1({bare(k): v for k, v in block.value.items()}):
        return
    asked = Asked(words, _former(mapping, _FORMER[0]), _number(_former(mapping, _FORMER[1])))
    done = to_fsdp2(block.value if block is not None else {}, asked)
    where = config if config is not None and block is not None else fsdp
    if mapping.shared or (block is not None and block.shared):
        yield found_at(
            file,
            fsdp.span,
            "FM612",
            "`fsdp` or `fsdp_config` is written elsewhere (a YAML alias or merge key) and is not changed",
            remedy="write the settings out here, and run again",
        )
        return
    for remark in done.remarks:
        at = (block.get(remark.key) if block is not None else None) or where
        span = at.span if at is not where else fsdp.span
        yield found_at(file, span, remark.code, remark.message, remedy=remark.remedy, is_note=remark.is_note)
    if done.blocked:
        return
    smoothing = mapping.get(SMOOTHING)
    if smoothing is not None and smooths(smoothing.value):
        yield found_at(file, smoothing.span, "FM617", SMOOTHS[0], remedy=SMOOTHS[1])
    if config is not None and block is None and config.value is not None:
        yield from _elsewhere(file, mapping, fsdp, config, done)
        return
    yield found_at(
        file,
        fsdp.span,
        "FM610",
        "`fsdp` becomes FSDP2's",
        safety=Safety.SAFE,
        edits=_edits(file, mapping, fsdp, config, done),
    )


def _edits(
    file: ConfigFile, mapping: Mapping, fsdp: Entry, config: Entry | None, done: Decisions
) -> list[Edit]:
    edits = [set_value(file, fsdp, True)]
    former = [e for key in _FORMER if (e := mapping.get(key)) is not None]
    edits += remove_entries(file, mapping, former)
    if config is None:
        end = file.line_end(fsdp.span.end)
        lead = " " * (fsdp.key_span.start - file.line_start(fsdp.key_span.start))
        if mapping.flow:
            edits += add_entries(file, mapping, [("fsdp_config", dict(done.added))], [fsdp])
            return edits
        body = "".join(f"{lead}  {key}: {written(file, value)}\n" for key, value in done.added)
        first = "" if file.text[:end].endswith("\n") else "\n"
        text = f"{first}{lead}fsdp_config:\n{body}"
        edits.append(Edit(file.path, _at(end), (text.rstrip("\n") if first else text,)))
    elif isinstance(config.node, Mapping) and config.node.entries:
        edits += block_edits(file, config.node, done)
    else:
        edits.append(set_value(file, config, dict(done.added)))
    return edits


def _at(position: int) -> Span:
    return Span(position, position)


def _elsewhere(
    file: ConfigFile, mapping: Mapping, fsdp: Entry, config: Entry, done: Decisions
) -> Iterator[Finding]:
    """`fsdp_config` names a file: what the words say beyond FSDP2's defaults has to be written there."""
    needed = beyond_defaults(done)
    if needed:
        yield found_at(
            file,
            fsdp.span,
            "FM612",
            f"`fsdp` says what has to stand in {config.value}",
            remedy=f"set `fsdp: true` here, write {needed} into {config.value}, and run again",
        )
        return
    former = [e for key in _FORMER if (e := mapping.get(key)) is not None]
    yield found_at(
        file,
        fsdp.span,
        "FM610",
        f"`fsdp` becomes `true`; the settings stand in {config.value}",
        safety=Safety.SAFE,
        edits=[set_value(file, fsdp, True), *remove_entries(file, mapping, former)],
    )


def _former(mapping: Mapping, key: str) -> str | None:
    entry = mapping.get(key)
    if entry is None or entry.value in (None, ""):
        return None
    if isinstance(entry.node, Scalar):
        return str(entry.value)
    return ",".join(str(item) for item in entry.value) if isinstance(entry.value, list) else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
