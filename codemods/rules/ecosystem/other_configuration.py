"""Configuration files of other programs that name FSDP1's settings."""

from __future__ import annotations

from collections.abc import Iterator

from codemods.configuration.accelerate import is_accelerate
from codemods.configuration.rule import Surroundings, config_rule, found_at
from codemods.configuration.settings import bare, strategy_named
from codemods.configuration.tree import ConfigFile, Entry, Mapping, below
from codemods.model import Finding

_PROGRAMS = {
    "base_model": "axolotl (`fsdp_version: 2` at the top, names without `fsdp_` in `fsdp_config`)",
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
        for mapping in below(root):
            for entry in mapping.entries:
                if _is_strategy(entry):
                    known = [
                        text for key, text in _PROGRAMS.items() if isinstance(root, Mapping) and root.get(key)
                    ]
                    whose = f"; this looks like {known[0]}" if known else ""
                    yield found_at(
                        file,
                        entry.span,
                        "FM640",
                        f"`{entry.key}: {entry.value}` is read by a program that is not known here, and "
                        f"stays{whose}",
                        is_note=True,
                    )


def _is_strategy(entry: Entry) -> bool:
    named = isinstance(entry.value, str) and strategy_named(entry.value) is not None
    return named and bare(entry.key) in ("sharding_strategy", "reshard_after_forward")
