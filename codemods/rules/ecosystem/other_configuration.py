"""Configuration files of other programs that name FSDP1's settings."""

from __future__ import annotations

from collections.abc import Iterator

from codemods.configuration.accelerate import is_accelerate
from codemods.configuration.rule import Surroundings, config_rule, found_at
from codemods.configuration.settings import bare, strategy_named
from codemods.configuration.trainer import AXOLOTL, is_axolotl, words_of
from codemods.configuration.tree import ConfigFile, Entry, Mapping, Node, below
from codemods.model import Finding

_PROGRAMS = {
    "base_model": AXOLOTL,
    "variables": "llm-foundry or composer (`parallelism_config: {fsdp2: ...}`)",
}


@config_rule(
    "configuration of other programs", {"FM640": "FSDP1 settings of a program that is not known here"}
)
def other_configuration(file: ConfigFile, around: Surroundings) -> Iterator[Finding]:
    """A sharding strategy in a configuration file that is neither Accelerate's nor a Transformers trainer's
    stays as it is.

    Which keys a program reads, and what they mean under FSDP2, only that program says. Where the program is
    part of the repository, the rewritten code keeps understanding the old values.
    """
    for root in file.roots:
        if isinstance(root, Mapping) and is_accelerate(root.value):
            continue
        words = _words_of_axolotl(root)
        if words is not None:
            yield _found(file, words, "fsdp", root)
            continue
        for mapping in below(root):
            for entry in mapping.entries:
                if _is_strategy(entry):
                    yield _found(file, entry, f"{entry.key}: {entry.value}", root)


def _words_of_axolotl(root: Node) -> Entry | None:
    """`fsdp: [full_shard, auto_wrap]` of axolotl, under which all its FSDP settings are told as one."""
    if not isinstance(root, Mapping) or not is_axolotl(root.value) or "fsdp_version" in root.value:
        return None
    entry = root.get("fsdp")
    return entry if entry is not None and words_of(entry.value) is not None else None


def _found(file: ConfigFile, entry: Entry, text: str, root: Node) -> Finding:
    known = [words for key, words in _PROGRAMS.items() if isinstance(root, Mapping) and root.get(key)]
    whose = f"; this looks like {known[0]}" if known else ""
    message = f"`{text}` is read by a program that is not known here, and stays{whose}"
    return found_at(file, entry.span, "FM640", message, is_note=True)


def _is_strategy(entry: Entry) -> bool:
    named = isinstance(entry.value, str) and strategy_named(entry.value) is not None
    return named and bare(entry.key) in ("sharding_strategy", "reshard_after_forward")
