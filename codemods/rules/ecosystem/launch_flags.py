"""Launch scripts: FSDP flags of Transformers trainers and of `accelerate launch`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from codemods.configuration import accelerate, trainer
from codemods.configuration.accelerate_layout import Launch
from codemods.configuration.rule import Surroundings, config_rule, found_at
from codemods.configuration.settings import Decisions, number
from codemods.configuration.shell import Command, Option, Word, commands
from codemods.configuration.tree import ConfigFile
from codemods.model import Edit, Finding, Safety, Span

_VARIABLES = {
    "FSDP_SHARDING_STRATEGY": "FSDP_VERSION=2 FSDP_RESHARD_AFTER_FORWARD=true",
    "FSDP_USE_ORIG_PARAMS": "FSDP_VERSION=2",
    "FSDP_BACKWARD_PREFETCH": "FSDP_VERSION=2",
    "FSDP_SYNC_MODULE_STATES": "FSDP_VERSION=2 FSDP_CPU_RAM_EFFICIENT_LOADING=true",
}
_FORMER = ("fsdp_transformer_layer_cls_to_wrap", "fsdp_min_num_params")


@config_rule(
    "launch flags",
    {
        "FM614": "FSDP flags of a launch script become FSDP2's",
        "FM615": "FSDP flags of a launch script that need a person",
    },
)
def launch_flags(file: ConfigFile, around: Surroundings) -> Iterator[Finding]:
    """`--fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap X` becomes `--fsdp --fsdp_config
    '{...}'`.

    Transformers 5 has no `--fsdp_transformer_layer_cls_to_wrap` and `--fsdp_min_num_params`; what they and
    the words of `--fsdp` said goes into `--fsdp_config`, which takes JSON. Flags of `accelerate launch`
    (`--fsdp_sharding_strategy` and the others) become those of `--fsdp_version 2`, as in Accelerate's files.
    A flag whose value is made at run time is left to you. A bare `--fsdp` flag is some other program's, and
    is not touched.
    """
    if file.kind != "shell":
        return
    for command in commands(file.text):
        options = command.options()
        names = {option.name for option in options}
        if any(name == "fsdp" for name in names):
            yield from _trainer(file, command, options)
        yield from _accelerate(file, _of_accelerate(command, options))
        for word in command.words:
            name, is_set, _ = word.raw.partition("=")
            if is_set and name in _VARIABLES:
                new = _VARIABLES[name]
                message = f"`{name}` sets Accelerate's FSDP1 by environment, and stays: `{new}` is FSDP2's"
                yield found_at(file, word.span, "FM615", message, is_note=True)


def _of_accelerate(command: Command, options: list[Option]) -> list[Option]:
    """The options that `accelerate launch` itself reads: those before the script."""
    texts = [word.text for word in command.words]
    if "launch" not in texts or not any(text and text.endswith("accelerate") for text in texts):
        return []
    script = next(
        (
            w.span.start
            for w in command.words
            if w.raw.rstrip("\"'").endswith(".py") or w.raw in ("-m", "--module")
        ),
        command.span.end,
    )
    return [option for option in options if option.span.start < script]


def _text(option: Option | None) -> str | None:
    """The value of an option given one word."""
    if option is None or not option.values:
        return None
    return option.values[0].text


def _find(options: Iterable[Option], name: str) -> Option | None:
    return next((option for option in options if option.name.replace("-", "_") == name), None)


def _trainer(file: ConfigFile, command: Command, options: list[Option]) -> Iterator[Finding]:
    fsdp = _find(options, "fsdp")
    former = [option for name in _FORMER if (option := _find(options, name)) is not None]
    if fsdp is None or not fsdp.values:
        return
    words = trainer.words_of(_words(fsdp))
    config = _find(options, "fsdp_config")
    if words is None:
        if former or config is not None:
            yield found_at(
                file,
                fsdp.span,
                "FM615",
                "the value of `--fsdp` is made at run time",
                remedy="use `--fsdp --fsdp_config '{\"version\": 2, ...}'`; `explain fsdp` says what becomes "
                "of each word",
            )
        return
    if any(_text(option) is None for option in former):
        yield found_at(
            file,
            fsdp.span,
            "FM615",
            "the layer classes or the size to wrap are made at run time",
            remedy='put them into `--fsdp_config \'{"version": 2, "transformer_layer_cls_to_wrap": [...]}\'`',
        )
        return
    layers = _text(_find(options, _FORMER[0]))
    asked = trainer.Asked(words, layers, number(_text(_find(options, _FORMER[1]))))
    told = _told(config)
    if told is not None and not trainer.is_fsdp1({trainer.bare(k): v for k, v in told.items()}):
        return
    done = trainer.to_fsdp2(told or {}, asked)
    for remark in done.remarks:
        code = "FM615" if not remark.is_note else "FM613"
        yield found_at(file, fsdp.span, code, remark.message, remedy=remark.remedy, is_note=remark.is_note)
    if done.blocked:
        return
    if config is not None and told is None:
        needed = trainer.beyond_defaults(done)
        if needed:
            yield found_at(
                file,
                fsdp.span,
                "FM615",
                "`--fsdp` says what has to stand in the file of `--fsdp_config`",
                remedy=f"use a bare `--fsdp` here, and write {needed} into that file",
            )
            return
    edits = _trainer_edits(file, fsdp, config, former, told, done)
    yield found_at(file, fsdp.span, "FM614", "`--fsdp` becomes FSDP2's", safety=Safety.SAFE, edits=edits)


def _words(fsdp: Option) -> object:
    """The words given: one quoted word, or several that are all the trainer's."""
    texts = [word.text for word in fsdp.values]
    if texts[0] is None:
        return None
    taken = [texts[0]]
    for text in texts[1:]:
        if text is None or text.lower() not in trainer.WORDS:
            break
        taken.append(text)
    return " ".join(taken)


def _told(config: Option | None) -> dict[str, object] | None:
    """An `fsdp_config` written as JSON in the command; None where there is none, or a file is named."""
    text = _text(config)
    if text is None or not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _trainer_edits(
    file: ConfigFile,
    fsdp: Option,
    config: Option | None,
    former: list[Option],
    told: dict[str, object] | None,
    done: Decisions,
) -> list[Edit]:
    edits = [_without(file, option) for option in former]
    end = _taken(fsdp)
    if config is not None and told is None:
        edits.append(Edit(file.path, Span(fsdp.span.start, end), ("--fsdp",)))
        return edits
    settings = {key: value for key, value in (told or {}).items() if key not in done.removed}
    for key, (new, value) in done.replaced.items():
        settings.pop(key)
        settings[new] = value
    settings.update(done.added)
    said = "'" + json.dumps(settings).replace("'", "'\\''") + "'"
    if config is None:
        edits.append(Edit(file.path, Span(fsdp.span.start, end), (f"--fsdp --fsdp_config {said}",)))
    else:
        edits.append(Edit(file.path, Span(fsdp.span.start, end), ("--fsdp",)))
        edits.append(Edit(file.path, config.values[0].span, (said,)))
    return edits


def _taken(fsdp: Option) -> int:
    """End of the words that belong to `--fsdp`."""
    end = fsdp.values[0].span.end
    for word in fsdp.values[1:]:
        if word.text is None or word.text.lower() not in trainer.WORDS:
            break
        end = word.span.end
    return end


def _without(file: ConfigFile, option: Option) -> Edit:
    """Remove an option with its value; its line too where it has one for itself."""
    text = file.text
    end = option.values[0].span.end if option.values else option.span.end
    start = file.line_start(option.span.start)
    line_end = file.line_end(end)
    rest = text[end:line_end].strip()
    if not text[start : option.span.start].strip():
        if rest == "\\":
            return Edit(file.path, Span(start, line_end), ())
        if not rest:  # the last line: the line before must not continue
            before = text[:start].rstrip()
            if before.endswith("\\"):
                return Edit(file.path, Span(len(before[:-1].rstrip()), end), ())
            return Edit(file.path, Span(start, line_end), ())
    while text[option.span.start - 1] in " \t" and text[end : end + 1] in (" ", "\t", ""):
        end += 1
        if end >= len(text) or text[end] not in " \t":
            break
    return Edit(file.path, Span(option.span.start, min(end, len(text))), ())


def _accelerate(file: ConfigFile, options: list[Option]) -> Iterator[Finding]:
    given = {option.name: option for option in options if option.name.startswith("fsdp_")}
    given = {name: option for name, option in given.items() if trainer.bare(name) in accelerate.KNOWN}
    values = {name: _text(option) for name, option in given.items()}
    if not given:
        return
    first = min(given.values(), key=lambda option: option.span.start)
    settings = {accelerate.bare(name): value for name, value in values.items()}
    if accelerate.is_fsdp2(settings):
        return
    unknown = [
        name
        for name, value in values.items()
        if value is None and name != "fsdp_transformer_layer_cls_to_wrap"
    ]
    if unknown:
        yield found_at(
            file,
            given[unknown[0]].span,
            "FM615",
            f"the value of `--{unknown[0]}` is made at run time",
            remedy=(
                "use `--fsdp_version 2` and the FSDP2 flags; `explain fsdp_config` says what becomes of each"
            ),
        )
        return
    processes, machines = (number(_text(_find(options, name))) for name in ("num_processes", "num_machines"))
    launch = Launch(processes, machines, _text(_find(options, "mixed_precision")) or "", can_have_mesh=False)
    done = accelerate.to_fsdp2(values, launch)
    for remark in done.remarks:
        at = given.get(remark.key, first)
        yield found_at(
            file, at.span, remark.code, remark.message, remedy=remark.remedy, is_note=remark.is_note
        )
    if done.blocked:
        return
    edits = [_without(file, option) for name, option in given.items() if name in done.removed]
    for name, (new, value) in done.replaced.items():
        option = given[name]
        edits.append(
            Edit(file.path, Span(option.span.start, _value(option).span.end), (f"--{new} {_said(value)}",))
        )
    if _find(options, "config_file") is not None:
        # What is not said here may be said there, and a flag would override it.
        done.added = [(name, value) for name, value in done.added if name == "fsdp_version"]
    added = "".join(f"--{name} {_said(value)} " for name, value in done.added)
    start = min(option.span.start for option in given.values())
    edits.append(Edit(file.path, Span(start, start), (added,)))
    yield found_at(file, first.span, "FM614", "these flags become FSDP2's", safety=Safety.SAFE, edits=edits)


def _value(option: Option) -> Word:
    return option.values[0]


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
