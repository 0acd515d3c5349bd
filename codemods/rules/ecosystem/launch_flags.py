"""Launch scripts: FSDP flags of Transformers trainers and of `accelerate launch`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from codemods.configuration.flags import Said, flags_of
from codemods.configuration.named import shared_settings, with_settings
from codemods.configuration.nested import may_hold_flags
from codemods.configuration.rule import Surroundings, config_rule, found_at
from codemods.configuration.shell import heredocs
from codemods.configuration.tree import ConfigFile
from codemods.configuration.variables import known_commands
from codemods.model import Edit, Finding, Safety, Span

_VARIABLES = {
    "FSDP_SHARDING_STRATEGY": "FSDP_VERSION=2 FSDP_RESHARD_AFTER_FORWARD=true",
    "FSDP_USE_ORIG_PARAMS": "FSDP_VERSION=2",
    "FSDP_BACKWARD_PREFETCH": "FSDP_VERSION=2",
    "FSDP_SYNC_MODULE_STATES": "FSDP_VERSION=2 FSDP_CPU_RAM_EFFICIENT_LOADING=true",
}
_SETS_VARIABLE = re.compile(rf"(?:{'|'.join(_VARIABLES)})=")
_SETTING = re.compile(r"^[ \t\"']*(fsdp_(?:sharding_strategy|config|auto_wrap_policy)\b)", re.MULTILINE)
_VERSION_2 = re.compile(r"fsdp_version[\"']?[ \t]*:[ \t]*2")


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
    A flag whose value is made at run time is left to you, and so are the words of `--fsdp` where that of
    `--fsdp_config` is: nobody would say what they said, and `--label_smoothing_factor` (`explain FM617`).
    `$CFG` is read where the script sets it to the name of a file and nothing can change that. A file that
    `--fsdp_config` or `--config_file` names changes together with all that name it, or not at all. A bare
    `--fsdp` flag is some other program's, and is not touched.

    Commands are found in shell scripts, Makefiles and Dockerfiles (both forms of `CMD`), in here-documents
    that are scripts themselves, and in quoted texts: one that `eval`, `bash -c` or `--wrap` runs has its
    quotes read again, one that is used as a bare `$CMD` is split at blanks, so its JSON is written tight. A
    text of which neither is known is left to you.
    """
    if file.kind not in ("shell", "docker"):
        return
    may_concern = may_hold_flags(file.text, is_docker=file.kind == "docker")
    for command in known_commands(file) if may_concern or _SETS_VARIABLE.search(file.text) else ():
        for said in flags_of(file.text, command):
            yield _found(file, said)
        for word in command.words:
            name, is_set, _ = word.raw.partition("=")
            if is_set and name in _VARIABLES:
                new = _VARIABLES[name]
                message = f"`{name}` sets Accelerate's FSDP1 by environment, and stays: `{new}` is FSDP2's"
                yield found_at(file, word.span, "FM615", message, is_note=True)
    yield from _written_files(file)


def _found(file: ConfigFile, said: Said) -> Finding:
    safety = Safety.SAFE if said.edits else Safety.MANUAL
    edits = [Edit(file.path, span, (text,)) for span, text in said.edits]
    found = found_at(
        file,
        said.span,
        said.code,
        said.message,
        remedy=said.remedy,
        safety=safety,
        edits=edits,
        is_note=said.is_note,
    )
    word = said.settings
    if word is None:
        return found
    keys = shared_settings(file.path, word.text, word.raw, file.text)
    return with_settings([found], keys)[0]


def _written_files(file: ConfigFile) -> Iterator[Finding]:
    """Accelerate's settings in a file that the script writes: `cat > fsdp.yaml <<EOF`."""
    for document in heredocs(file.text) if _SETTING.search(file.text) else ():
        inner = file.text[document.span.start : document.span.end]
        setting = _SETTING.search(inner)
        if setting is not None and not _VERSION_2.search(inner):
            start = document.span.start + setting.start(1)
            yield found_at(
                file,
                Span(start, start + len(setting.group(1))),
                "FM615",
                "the script writes an FSDP1 configuration of Accelerate",
                remedy="put the configuration into a file of its own, which is rewritten, or write "
                "`fsdp_version: 2` and FSDP2's settings here (`explain fsdp_config`)",
            )
