"""From decisions about a block of settings to findings and edits of its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from codemods.configuration.edits import add_entries, remove_entries, rename_key, set_value, written
from codemods.configuration.rule import found_at
from codemods.configuration.settings import Decisions, Remark
from codemods.configuration.tree import ConfigFile, Entry, Mapping
from codemods.model import Edit, Finding, Safety


def block_findings(
    file: ConfigFile,
    entry: Entry,
    block: Mapping,
    done: Decisions,
    code: str,
    extra: Iterable[Edit] = (),
) -> Iterator[Finding]:
    """One finding for the change of the whole block, and one for each remark.

    Args:
        entry: the block with its key; the change is reported there.
        code: of the change.
        extra: edits elsewhere in the file that belong to the change.
    """
    if block.shared:
        yield found_at(
            file,
            entry.key_span,
            code,
            f"`{entry.key}` is written elsewhere (a YAML alias or merge key) and is not changed",
            remedy="write the settings out here, and run again",
        )
        return
    for remark in done.remarks:
        yield _remark(file, entry, block, remark, done)
    if done.blocked:
        return
    edits = [*block_edits(file, block, done), *extra]
    yield found_at(
        file, entry.key_span, code, "these settings become FSDP2's", safety=Safety.SAFE, edits=edits
    )


def block_edits(file: ConfigFile, block: Mapping, done: Decisions) -> list[Edit]:
    """The edits of a block."""
    edits: list[Edit] = []
    gone = [e for e in block.entries if e.key in done.removed]
    kept = [e for e in block.entries if e.key not in done.removed]
    for setting in kept:
        if setting.key in done.replaced:
            key, value = done.replaced[setting.key]
            if key != setting.key:
                edits.append(rename_key(file, setting, key))
            if setting.value != value or type(setting.value) is not type(value):
                edits.append(set_value(file, setting, value))
    edits += remove_entries(file, block, gone)
    if kept:
        edits += add_entries(file, block, done.added, kept)
    elif done.added and block.flow:
        quote = '"' if file.kind == "json" else ""
        body = ", ".join(f"{quote}{key}{quote}: {written(file, value)}" for key, value in done.added)
        edits = [Edit(file.path, block.span, ("{" + body + "}",))]
    elif done.added:  # none of the settings stays; comments between them do
        edits += add_entries(file, block, done.added, gone)
    return edits


def _remark(file: ConfigFile, entry: Entry, block: Mapping, remark: Remark, done: Decisions) -> Finding:
    at = block.get(remark.key) if remark.key else None
    span = at.span if at is not None else entry.key_span
    if not remark.remove and not remark.set_to:
        return found_at(file, span, remark.code, remark.message, remedy=remark.remedy, is_note=remark.is_note)
    edits: list[Edit] = []
    if remark.remove and at is not None and not block.flow:
        # In braces its comma may be where new settings are put; there it stays, without effect.
        edits += remove_entries(file, block, [at])
    for key, value in remark.set_to:
        setting = block.get(key)
        if setting is not None:
            edits.append(set_value(file, setting, value))
    safety = Safety.MANUAL if done.blocked else Safety.UNSAFE
    return found_at(
        file,
        span,
        remark.code,
        remark.message,
        remedy=remark.remedy,
        safety=safety,
        edits=() if safety is Safety.MANUAL else edits,
    )
