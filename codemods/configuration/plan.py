"""Configuration files from bytes to changes: which are read, what is found in them, what is applied. Writes
nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from codemods.configuration.comments import ignores, judged, suppresses, suppressions_in, todos
from codemods.configuration.json_tree import read_json
from codemods.configuration.nested import all_commands, may_hold_flags
from codemods.configuration.rule import Surroundings, config_checks
from codemods.configuration.tree import ConfigFile, below
from codemods.editing.apply import apply_edits, compatible
from codemods.editing.todo import todo_lines
from codemods.model import (
    Edit,
    FileChange,
    Finding,
    Options,
    Outcome,
    Place,
    Reported,
    Safety,
    Span,
    Suppression,
)
from codemods.sources import SourceFile
from codemods.whole import only_whole_file

_LARGEST = 512 * 1024
"""A configuration is no larger than this; JSON files that are hold data."""
_WIDTH = 100
_SETTINGS = re.compile(
    rb"fsdp_config|fsdp_\w+[\"']?[ \t]*[:=]|--fsdp|[\"']?\bfsdp[\"']?[ \t]*:|\bFSDP_[A-Z_]+=|"
    rb"sharding_strategy|transformer_layer_cls_to_wrap|use_orig_params|sync_module_states|backward_prefetch|min_num_params"
)


@dataclass(slots=True)
class ConfigRewrite:
    """What the configuration files come to.

    Attributes:
        searched: files looked at; `read` of them were parsed because they name FSDP settings.
    """

    changes: list[FileChange] = field(default_factory=list)
    reported: list[Reported] = field(default_factory=list)
    searched: int = 0
    read: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    suppressions: list[Suppression] = field(default_factory=list)


def plan_configuration(
    target: Path,
    files: Iterable[str],
    options: Options,
    around: Surroundings,
    *,
    only: frozenset[str] | None = None,
) -> ConfigRewrite:
    """Everything that a rewrite of these configuration files comes to.

    Args:
        files: relative to the target, forward slashes.
        only: the files that may be changed; all if None.
    """
    done = ConfigRewrite()
    chosen = [path for path in files if only is None or path in only]
    done.searched = len(chosen)
    found = {path: file for path in chosen if (file := _read(target, path, around, done)) is not None}
    named = {name for file in found.values() for name in named_configs(file)}
    around = Surroundings(around.named_as_trainer | named)
    for path in chosen:
        if path in named - set(found) and (file := _read(target, path, around, done)) is not None:
            found[path] = file
    done.read = len(found)
    for path in sorted(found):
        _rewrite(found[path], options, around, done)
    return done


def named_configs(file: ConfigFile) -> set[str]:
    """Files named as `fsdp_config` by a script or configuration, seen from its folder and from the target."""
    names: set[str] = set()
    is_docker = file.kind == "docker"
    if file.kind in ("shell", "docker") and may_hold_flags(file.text, is_docker=is_docker):
        found = all_commands(file.text, is_docker=is_docker)
        options = (option for command in found for option in command.options())
        names = {str(o.values[0].text) for o in options if o.name == "fsdp_config" and o.values}
    for root in file.roots:
        for mapping in below(root):
            entry = mapping.get("fsdp_config")
            if entry is not None and isinstance(entry.value, str):
                names.add(entry.value)
    folder = PurePosixPath(file.path).parent
    return {str(path) for name in names for path in (folder / name, PurePosixPath(name))}


def _read(target: Path, path: str, around: Surroundings, done: ConfigRewrite) -> ConfigFile | None:
    try:
        if (target / path).stat().st_size > _LARGEST:
            if _names_settings(target / path):
                done.skipped[path] = (
                    f"names FSDP settings, but is larger than {_LARGEST // 1024} KiB: it was not read"
                )
            return None
        data = (target / path).read_bytes()
    except OSError as error:
        done.skipped[path] = f"cannot be read: {error.strerror or error}"
        return None
    if not _SETTINGS.search(data) and path not in around.named_as_trainer:
        return None
    try:
        return parse(path, data)
    except (ValueError, RecursionError) as error:
        done.skipped[path] = f"cannot be parsed: {error}"
        return None


def _names_settings(path: Path) -> bool:
    """Whether a large file says anything about FSDP, read in pieces that overlap."""
    rest = b""
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            if _SETTINGS.search(rest + piece):
                return True
            rest = piece[-64:]
    return False


def parse(path: str, data: bytes) -> ConfigFile:
    """Decode and parse a configuration file.

    Raises:
        ValueError: it is not what its ending says.
    """
    encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8"
    text = data.decode(encoding)
    if "\r" in text.replace("\r\n", ""):
        raise ValueError("its lines end in carriage returns alone")
    newline = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
    source = SourceFile(path, data, text, encoding, newline)
    match PurePosixPath(path).suffix:
        case ".yaml" | ".yml":
            from codemods.configuration.yaml_tree import read_yaml  # PyYAML is slow to import

            return ConfigFile(source, "yaml", read_yaml(text))
        case ".json":
            return ConfigFile(source, "json", (read_json(text),))
    name = PurePosixPath(path).name.lower()
    is_docker = name.startswith(("dockerfile", "containerfile")) or name.endswith(".dockerfile")
    return ConfigFile(source, "docker" if is_docker else "shell")


def _rewrite(file: ConfigFile, options: Options, around: Surroundings, done: ConfigRewrite) -> None:
    findings = [
        found for check in config_checks() for found in check(file, around) if options.wants(found.code)
    ]
    reported, edits = _decide(file, findings, options)
    if options.whole_only and any(r.outcome is Outcome.TODO for r in reported):
        reported, edits = only_whole_file(reported), []
    done.suppressions += suppressions_in(file, reported, options)
    done.reported += judged(file, done.suppressions, options)
    reported += _old_todos(file, reported)
    edits += _todo_edits(file, [r for r in reported if not r.left_whole])
    after = apply_edits(file.text, edits, _no_names, file.source.newline)
    encoded = file.source.encoded(after)
    if encoded == file.source.data:
        done.reported += reported
        return
    try:
        parse(file.path, encoded)
    except ValueError as error:
        message = f"the file was left as it is: its rewritten form could not be read ({error})"
        place = Place(file.path, 1, 1, Span(0, 0))
        done.reported.append(Reported(Finding("FM903", place, message), Outcome.TODO))
        return
    done.reported += reported
    done.changes.append(FileChange(file.path, file.source.data, encoded))


def _no_names(name: str, position: int) -> str:
    raise AssertionError(f"{name}: names from elsewhere do not occur in configuration")


def _decide(
    file: ConfigFile, findings: Iterable[Finding], options: Options
) -> tuple[list[Reported], list[Edit]]:
    comments = ignores(file)
    reported: list[Reported] = []
    edits: list[Edit] = []
    for found in findings:
        reason = next((c.text or "no reason given" for c in comments if suppresses(file, c, found)), None)
        if reason is not None:
            reported.append(Reported(found, Outcome.IGNORED, reason))
        elif found.is_note:
            reported.append(Reported(found, Outcome.NOTE))
        elif found.safety is Safety.MANUAL:
            reported.append(Reported(found, Outcome.TODO))
        elif found.safety is Safety.UNSAFE and not options.unsafe_fixes:
            reported.append(Reported(found, Outcome.TODO, "a fix is offered by --unsafe-fixes"))
        elif any(not compatible(edit, other) for edit in found.edits for other in edits):
            reported.append(Reported(found, Outcome.TODO, "its edit overlaps another"))
        else:
            reported.append(Reported(found, Outcome.DONE))
            edits.extend(found.edits)
    return reported, edits


def _todo_edits(file: ConfigFile, reported: list[Reported]) -> list[Edit]:
    """Comment lines before the lines that need a person; JSON has no comments."""
    if file.kind == "json":
        return []
    edits: list[Edit] = []
    seen: set[tuple[int, str]] = set()
    standing = todos(file)
    for item in reported:
        found = item.finding
        if item.outcome is not Outcome.TODO or not found.remedy:
            continue
        start = todo_position(file, found.place.span.start)
        if (start, found.code) in seen or found.place.line in {c.line for c in standing}:
            continue
        seen.add((start, found.code))
        if any(found.code in c.codes and c.line in _lines_above(file, start) for c in standing):
            continue
        line = file.text[start : file.line_end(start)]
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        lines = todo_lines(found.code, found.remedy, _WIDTH - len(indent))
        text = "".join(f"{indent}{line}\n" for line in lines)
        edits.append(Edit(file.path, Span(start, start), (text,)))
    return edits


def todo_position(file: ConfigFile, position: int) -> int:
    """Where a comment line can stand: before the line, in shell before the command's first line, never within
    braces."""
    if file.kind in ("shell", "docker"):
        for command in all_commands(file.text, is_docker=file.kind == "docker"):
            if command.span.start <= position < command.span.end:
                return file.line_start(_array_start(file.text, command.span.start))
    flows = [m.span for root in file.roots for m in below(root) if m.flow and m.span.start < position]
    around = [span.start for span in flows if position < span.end]
    return file.line_start(min([position, *around]))


def _array_start(text: str, position: int) -> int:
    """The start of `NAME=(` where only blanks stand between it and an array's first word."""
    before = text[:position].rstrip()
    return len(before) - 1 if before.endswith("(") else position


def _lines_above(file: ConfigFile, position: int) -> set[int]:
    """The comment lines directly above a line."""
    lines = file.text.split("\n")  # as the file counts them: a form feed ends none
    number = file.line_of(position) - 1
    found = set()
    while number >= 1 and lines[number - 1].lstrip().startswith("#"):
        found.add(number)
        number -= 1
    return found


def _old_todos(file: ConfigFile, reported: list[Reported]) -> list[Reported]:
    """TODO comments of an earlier run that no finding of this run stands for."""
    standing = {
        (code, line)
        for r in reported
        if r.outcome in (Outcome.TODO, Outcome.IGNORED)
        for code in (r.finding.code,)
        for line in _lines_above(file, todo_position(file, r.finding.place.span.start))
    }
    found = []
    for comment in todos(file):
        code = next(iter(comment.codes))
        if (code, comment.line) in standing:
            continue
        start = file.position(comment.line)
        place = Place(file.path, comment.line, comment.column, Span(start, file.line_end(start)))
        left = Finding(code, place, "a TODO of an earlier run is not resolved", comment.text)
        found.append(Reported(left, Outcome.TODO))
    return found
