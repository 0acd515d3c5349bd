"""FSDP flags in a command line, wherever that stands: what becomes of them, in pieces of text.

`--fsdp "full_shard auto_wrap"` of Transformers' trainers and `--fsdp_sharding_strategy ...` of `accelerate
launch`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from dataclasses import replace as changed

from codemods.configuration import accelerate, trainer
from codemods.configuration.accelerate_layout import Launch
from codemods.configuration.settings import Decisions, bare, number
from codemods.configuration.shell import Command, Option, Word
from codemods.configuration.writing import CannotWrite, removal, written
from codemods.model import Span

_FORMER = ("fsdp_transformer_layer_cls_to_wrap", "fsdp_min_num_params")


@dataclass(frozen=True, slots=True)
class Said:
    """One thing said about a command.

    Attributes:
        edits: (span, new text) pairs that translate it; none where a person is needed.
        settings: the file that the command names for the rest of what it says.
    """

    span: Span
    code: str
    message: str
    remedy: str = ""
    is_note: bool = False
    edits: tuple[tuple[Span, str], ...] = ()
    settings: Word | None = None


def flags_of(text: str, command: Command) -> Iterator[Said]:
    """What becomes of the FSDP flags of a command.

    Args:
        text: the file's text.
    """
    options = command.options()
    try:
        if any(option.name == "fsdp" for option in options):
            named = _named(_find(options, "fsdp_config"))
            yield from (changed(s, settings=named) for s in _trainer(text, command, options))
        launch = _of_accelerate(command, options)
        named = _named(_find(launch, "config_file"))
        yield from (changed(s, settings=named) for s in _accelerate(text, command, launch))
    except CannotWrite as error:
        flags = [option for option in options if option.name.startswith("fsdp")]
        remedy = (
            "write FSDP2's flags by hand: `explain fsdp` and `explain fsdp_config` say what becomes of each"
        )
        named = _named(_find(options, "fsdp_config")) or _named(_find(options, "config_file"))
        message = f"the flags stay as they are: {error}"
        yield Said(flags[0].span, "FM615", message, remedy, settings=named)


def _of_accelerate(command: Command, options: list[Option]) -> list[Option]:
    """The options that `accelerate launch` itself reads: those before the script."""
    texts = [word.text for word in command.words]
    is_launcher = any(text and text.endswith(("accelerate", "accelerate.commands.launch")) for text in texts)
    if not is_launcher or ("launch" not in texts and "accelerate.commands.launch" not in texts):
        return []
    launched = texts.index("launch") if "launch" in texts else texts.index("accelerate.commands.launch")
    script = next(
        (
            w.span.start
            for w in command.words[launched:]
            if w.raw.strip("\"'").endswith(".py") or w.raw.strip("\"'") in ("-m", "--module")
        ),
        command.span.end,
    )
    return [option for option in options if option.span.start < script]


def _named(config: Option | None) -> Word | None:
    """The word that names a settings file; None where the settings are written in the command."""
    word = config.values[0] if config is not None and config.values else None
    return None if word is not None and (word.text or "").lstrip().startswith("{") else word


def _text(option: Option | None) -> str | None:
    """The value of an option given one word."""
    if option is None or not option.values:
        return None
    return option.values[0].text


def _find(options: Iterable[Option], name: str) -> Option | None:
    return next((option for option in options if option.name == name), None)


def _trainer(text: str, command: Command, options: list[Option]) -> Iterator[Said]:
    fsdp = _find(options, "fsdp")
    former = [option for name in _FORMER if (option := _find(options, name)) is not None]
    if fsdp is None or not fsdp.values:
        return
    words = trainer.words_of(_words(fsdp))
    config = _find(options, "fsdp_config")
    if words is None:
        if _names_file(fsdp.values[0]):
            return  # another program's flag: what Transformers reads here are words
        raw = " ".join(word.raw for word in fsdp.values).lower()
        if former or config is not None or any(word in raw for word in trainer.WORDS):
            remedy = (
                "use `--fsdp --fsdp_config '{\"version\": 2, ...}'`: `explain fsdp` says what to put there"
            )
            yield Said(fsdp.span, "FM615", "the value of `--fsdp` is made at run time", remedy)
        return
    if any(_text(option) is None for option in former):
        remedy = 'put them into `--fsdp_config \'{"version": 2, "transformer_layer_cls_to_wrap": [...]}\'`'
        yield Said(fsdp.span, "FM615", "the layer classes or the size to wrap are made at run time", remedy)
        return
    layers = _text(_find(options, _FORMER[0]))
    asked = trainer.Asked(words, layers, number(_text(_find(options, _FORMER[1]))))
    told = _told(config)
    if told is not None and not trainer.is_fsdp1({bare(k): v for k, v in told.items()}):
        return
    done = trainer.to_fsdp2(told or {}, asked)
    for remark in done.remarks:
        code = "FM615" if not remark.is_note else "FM613"
        yield Said(fsdp.span, code, remark.message, remark.remedy, remark.is_note)
    if done.blocked:
        return
    if config is not None and told is None and not _is_file(_text(config)):
        needed = json.dumps(dict(done.added))
        message = "`--fsdp` says what has to stand in `--fsdp_config`, whose value is made at run time"
        remedy = f"use a bare `--fsdp` here, and let what `--fsdp_config` is given hold {needed}"
        yield Said(fsdp.span, "FM615", message, remedy)
        return
    if config is not None and told is None and (needed := trainer.beyond_defaults(done)):
        message = "`--fsdp` says what has to stand in the file of `--fsdp_config`"
        remedy = f"use a bare `--fsdp` here, write {needed} into that file, and run again"
        yield Said(fsdp.span, "FM615", message, remedy)
        return
    smoothing = _find(options, trainer.SMOOTHING)
    if smoothing is not None and trainer.smooths(_text(smoothing)):
        yield Said(smoothing.span, "FM615", *trainer.SMOOTHS)
    edits = _trainer_edits(text, command, fsdp, config, former, told, done)
    yield Said(fsdp.span, "FM614", "`--fsdp` becomes FSDP2's", edits=tuple(edits))


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


def _names_file(word: Word) -> bool:
    """Whether a word ends like the name of a settings file: `./fsdp2.json`, `"$DIR/fsdp.yaml"`."""
    return word.raw.strip("\"'").lower().endswith((".json", ".yaml", ".yml"))


def _is_file(text: str | None) -> bool:
    """Whether the text given as `fsdp_config` is known, and the name of a file."""
    return text is not None and bool(text.strip()) and not text.lstrip().startswith("{")


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
    text: str,
    command: Command,
    fsdp: Option,
    config: Option | None,
    former: list[Option],
    told: dict[str, object] | None,
    done: Decisions,
) -> list[tuple[Span, str]]:
    edits = [(removal(text, command, option), "") for option in former]
    place = Span(fsdp.span.start, _taken(fsdp))
    if config is not None and told is None:
        return [*edits, (place, written(command, ["--fsdp"]))]
    settings = {key: value for key, value in (told or {}).items() if key not in done.removed}
    for key, (new, value) in done.replaced.items():
        settings.pop(key)
        settings[new] = value
    settings.update(done.added)
    said = json.dumps(settings)
    if config is None:
        return [*edits, (place, written(command, ["--fsdp", "--fsdp_config", said]))]
    value = config.values[0].span
    if config.joined:
        value = Span(config.span.start, value.end)
        return [
            *edits,
            (place, written(command, ["--fsdp"])),
            (value, written(command, ["--fsdp_config", said])),
        ]
    return [*edits, (place, written(command, ["--fsdp"])), (value, written(command, [said]))]


def _taken(fsdp: Option) -> int:
    """End of the words that belong to `--fsdp`."""
    end = fsdp.values[0].span.end
    for word in fsdp.values[1:]:
        if word.text is None or word.text.lower() not in trainer.WORDS:
            break
        end = word.span.end
    return end


def _accelerate(text: str, command: Command, options: list[Option]) -> Iterator[Said]:
    given = {option.name: option for option in options if option.name.startswith("fsdp_")}
    given = {name: option for name, option in given.items() if bare(name) in accelerate.KNOWN}
    values = {name: _text(option) for name, option in given.items()}
    if not given or accelerate.is_fsdp2({bare(name): value for name, value in values.items()}):
        return
    first = min(given.values(), key=lambda option: option.span.start)
    unknown = [n for n, v in values.items() if v is None and n != "fsdp_transformer_layer_cls_to_wrap"]
    if unknown:
        remedy = "use `--fsdp_version 2` and the FSDP2 flags; `explain fsdp_config` says what becomes of each"
        message = f"the value of `--{unknown[0]}` is made at run time"
        yield Said(given[unknown[0]].span, "FM615", message, remedy)
        return
    processes, machines = (number(_text(_find(options, name))) for name in ("num_processes", "num_machines"))
    launch = Launch(processes, machines, _text(_find(options, "mixed_precision")) or "", can_have_mesh=False)
    done = accelerate.to_fsdp2(values, launch)
    for remark in done.remarks:
        at = given.get(remark.key, first)
        yield Said(at.span, remark.code, remark.message, remark.remedy, remark.is_note)
    if done.blocked:
        return
    edits = [(removal(text, command, option), "") for name, option in given.items() if name in done.removed]
    for name, (new, value) in done.replaced.items():
        place = Span(given[name].span.start, given[name].values[0].span.end)
        edits.append((place, written(command, [f"--{new}", _said(value)])))
    if _find(options, "config_file") is not None:
        # What is not said here may be said there, and a flag would override it.
        done.added = [(name, value) for name, value in done.added if name == "fsdp_version"]
    added = [word for name, value in done.added for word in (f"--{name}", _said(value))]
    if added:
        separator = ", " if written(command, ["a", "b"]).count(",") else " "
        edits.append((Span(first.span.start, first.span.start), written(command, added) + separator))
    yield Said(first.span, "FM614", "these flags become FSDP2's", edits=tuple(edits))


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
