"""Edits of mappings that leave the rest of the file as it is: order, quotes, comments, indentation,
commas."""

from __future__ import annotations

import json
import re

from codemods.configuration.tree import ConfigFile, Entry, Mapping
from codemods.model import Edit, Span

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*")
_NO_STRINGS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def written(file: ConfigFile, value: object) -> str:
    """A value in one line, as the file's language writes it; valid YAML and valid JSON where both allow
    it."""
    plain = file.kind != "json" and isinstance(value, str) and _PLAIN.fullmatch(value)
    return str(value) if plain and str(value).lower() not in _NO_STRINGS else json.dumps(value)


def set_value(file: ConfigFile, entry: Entry, value: object) -> Edit:
    """Replace an entry's value."""
    span = entry.node.span
    text = written(file, value)
    if span.start == span.end:  # `key:` with nothing after it
        return Edit(file.path, Span(entry.key_span.end + 1, entry.key_span.end + 1), (f" {text}",))
    return Edit(file.path, span, (text,))


def rename_key(file: ConfigFile, entry: Entry, key: str) -> Edit:
    """Replace an entry's key, in the quotes it has."""
    old = file.text[entry.key_span.start : entry.key_span.end]
    quote = old[0] if old[:1] in ("'", '"') else ""
    return Edit(file.path, entry.key_span, (f"{quote}{key}{quote}",))


def remove_entry(file: ConfigFile, mapping: Mapping, entry: Entry) -> Edit:
    """Remove an entry with its line; a comment beside it stays, on a line of its own."""
    return _remove_flow(file, mapping, entry) if mapping.flow else _remove_block(file, entry)


def _remove_block(file: ConfigFile, entry: Entry) -> Edit:
    span = entry.span
    start, end = file.line_start(span.start), file.line_end(span.end)
    rest = file.text[span.end : end]
    comment = rest.find("#")
    if comment >= 0:
        return Edit(file.path, Span(span.start, span.end + comment), ())
    if file.text[start : span.start].strip():  # `- key: value`: the first entry of a mapping in a list
        follows = re.compile(r"\s*").match(file.text, end)
        assert follows is not None
        return Edit(file.path, Span(span.start, follows.end()), ())
    return Edit(file.path, Span(start, end), ())


def _remove_flow(file: ConfigFile, mapping: Mapping, entry: Entry) -> Edit:
    position = mapping.entries.index(entry)
    if position + 1 < len(mapping.entries):
        following = mapping.entries[position + 1].key_span.start
        between = file.text[entry.span.end : following]
        if "#" in between:  # a YAML comment lies there: take the comma alone
            return Edit(file.path, Span(entry.span.start, entry.span.end + between.index(",") + 1), ())
        return Edit(file.path, Span(entry.span.start, following), ())
    if position:
        return Edit(file.path, Span(mapping.entries[position - 1].span.end, entry.span.end), ())
    return Edit(file.path, entry.span, ())


def remove_entries(file: ConfigFile, mapping: Mapping, entries: list[Entry]) -> list[Edit]:
    """Remove several entries; in braces, a run at the end goes as one piece, so that no comma is left
    over."""
    if not mapping.flow or not entries:
        return [remove_entry(file, mapping, entry) for entry in entries]
    positions = {mapping.entries.index(entry) for entry in entries}
    tail = len(mapping.entries)
    while tail - 1 in positions:
        tail -= 1
    edits = [remove_entry(file, mapping, mapping.entries[p]) for p in sorted(positions) if p < tail]
    if tail < len(mapping.entries):
        first = mapping.entries[tail - 1].span.end if tail else mapping.entries[0].span.start
        edits.append(Edit(file.path, Span(first, mapping.entries[-1].span.end), ()))
    return edits


def add_entries(
    file: ConfigFile, mapping: Mapping, added: list[tuple[str, object]], kept: list[Entry]
) -> list[Edit]:
    """Add entries: at their place where the keys are in order, at the end otherwise.

    Args:
        kept: the entries that stay, in the order of the file; at least one. In a block, entries that go will
        do too.
    """
    edits = []
    keys = [entry.key for entry in kept]
    in_order = len(keys) > 1 and keys == sorted(keys)
    for key, value in sorted(added) if in_order else added:
        before = [e for e in kept if e.key < key] if in_order else kept
        edits.append(_add_after(file, mapping, before[-1] if before else kept[-1], key, value))
    return edits


def _add_after(file: ConfigFile, mapping: Mapping, entry: Entry, key: str, value: object) -> Edit:
    text = file.text
    start = file.line_start(entry.key_span.start)
    lead = text[start : entry.key_span.start]
    own_line = not lead.strip()
    if not mapping.flow:
        indent = lead if own_line else " " * (entry.key_span.start - start)
        end = file.line_end(entry.span.end)
        first = "" if text[:end].endswith("\n") else "\n"
        last = "\n" if not first else ""
        return Edit(file.path, Span(end, end), (f"{first}{indent}{key}: {written(file, value)}{last}",))
    separator = f",\n{lead}" if own_line and mapping.span.start < start else ", "
    quoted = json.dumps(key) if file.kind == "json" else key
    end = entry.span.end
    return Edit(file.path, Span(end, end), (f"{separator}{quoted}: {written(file, value)}",))
