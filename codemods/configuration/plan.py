"""Configuration files from bytes to changes: which are read, what is found in them, what is applied. Writes
nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from codemods.configuration.comments import ignores, judged, suppresses, suppressions_in
from codemods.configuration.json_tree import read_json
from codemods.configuration.named import absent_settings, keys_in, keys_of_file, paths_named, with_settings
from codemods.configuration.nested import may_hold_flags
from codemods.configuration.rule import Surroundings, config_checks
from codemods.configuration.todo import old_todos, todo_edits
from codemods.configuration.tree import ConfigFile, below
from codemods.configuration.variables import known_commands
from codemods.editing.apply import apply_edits, compatible
from codemods.model import (
    WHOLE_FILE,
    Edit,
    FileChange,
    Finding,
    Options,
    Outcome,
    Place,
    Reported,
    Safety,
    Suppression,
)
from codemods.shared_types import of_known_files
from codemods.sources import SourceFile
from codemods.whole import only_whole_file

_LARGEST = 512 * 1024
"""A configuration is no larger than this; JSON files that are hold data."""
_SETTINGS = re.compile(
    rb"fsdp_config|fsdp_\w+[\"']?[ \t]*[:=]|--fsdp|[\"']?\bfsdp[\"']?[ \t]*:|\bFSDP_[A-Z_]+=|"
    rb"torch\.distributed\.fsdp\.|sharding_strategy|transformer_layer_cls_to_wrap|use_orig_params|sync_module_states|backward_prefetch|min_num_params"
)


@dataclass(slots=True)
class ConfigRewrite:
    """What the configuration files come to.

    Attributes:
        searched: files looked at; `read` of them were parsed because they name FSDP settings.
        found: what is in each file that may be changed.
        absent: what is in the others.
        missing: notes on settings files that are named and not there.
    """

    options: Options
    changes: list[FileChange] = field(default_factory=list)
    reported: list[Reported] = field(default_factory=list)
    searched: int = 0
    read: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    suppressions: list[Suppression] = field(default_factory=list)
    found: list[tuple[ConfigFile, list[Finding]]] = field(default_factory=list)
    absent: list[Finding] = field(default_factory=list)
    missing: list[Finding] = field(default_factory=list)

    def decide(self, held: Mapping[Finding, str]) -> list[Reported]:
        """Give each finding its outcome, and each file its new text.

        Args:
            held: findings that are left although they could be done, and why.
        """
        self.changes, self.reported, self.suppressions = [], [], []
        for file, findings in self.found:
            _rewrite(file, findings, held, self)
        return self.reported


def plan_configuration(
    target: Path,
    files: Iterable[str],
    options: Options,
    around: Surroundings,
    elsewhere: Iterable[Finding] = (),
    *,
    only: frozenset[str] | None = None,
) -> ConfigRewrite:
    """What is found in configuration files; `decide` says what a rewrite of them comes to.

    Args:
        files: relative to the target, forward slashes.
        elsewhere: findings in Python, some of which name settings files.
        only: the files that may be changed; all if None. The others are read for what they name.
    """
    done = ConfigRewrite(options)
    files = list(files)
    found = {path: file for path in files if (file := _read(target, path, around, done)) is not None}
    named = {name for file in found.values() for name in named_configs(file)}
    around = Surroundings(around.named_as_trainer | named)
    for path in files:
        if path in named - set(found) and (file := _read(target, path, around, done)) is not None:
            found[path] = file
    findings = {
        path: [f for check in config_checks() for f in check(file, around) if options.wants(f.code)]
        for path, file in sorted(found.items())
    }
    elsewhere = list(elsewhere)
    types = {key for f in elsewhere for key in f.shares}
    every = [*elsewhere, *(f for some in findings.values() for f in some)]
    keys = keys_in(every)
    done.missing = [f for f in absent_settings(target, every) if only is None or f.place.path in only]
    for path, some in findings.items():
        is_alone = found[path].kind == "json" and any(f.code == "FM610" for f in some)
        some = with_settings(some, keys_of_file(path, keys, is_alone=is_alone))
        some = [replace(f, shares=of_known_files(f.shares, types)) for f in some]
        if only is None or path in only:
            done.found.append((found[path], some))
        else:
            done.absent += some
    done.searched = sum(only is None or path in only for path in files)
    done.read = len(done.found)
    return done


def named_configs(file: ConfigFile) -> set[str]:
    """Files named as `fsdp_config` by a script or configuration, seen from its folder and from the target."""
    names: set[str] = set()
    is_docker = file.kind == "docker"
    if file.kind in ("shell", "docker") and may_hold_flags(file.text, is_docker=is_docker):
        options = (option for command in known_commands(file) for option in command.options())
        names = {str(o.values[0].text) for o in options if o.name == "fsdp_config" and o.values}
    for root in file.roots:
        for mapping in below(root):
            entry = mapping.get("fsdp_config")
            if entry is not None and isinstance(entry.value, str):
                names.add(entry.value)
    return {path for name in names for path in paths_named(file.path, name)}


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


def _rewrite(
    file: ConfigFile, findings: list[Finding], held: Mapping[Finding, str], done: ConfigRewrite
) -> None:
    options = done.options
    reported, edits = _decide(file, findings, options, held)
    # No comment in a JSON file can say what is left to do there: a second run would say that all is done.
    is_whole = options.whole_only or file.kind == "json"
    if is_whole and any(r.outcome is Outcome.TODO for r in reported):
        reported, edits = only_whole_file(reported), []
    done.suppressions += suppressions_in(file, reported, options)
    done.reported += judged(file, done.suppressions, options)
    reported += old_todos(file, reported)
    edits += todo_edits(file, [r for r in reported if not r.left_whole])
    after = apply_edits(file.text, edits, _no_names, file.source.newline)
    encoded = file.source.encoded(after)
    if encoded == file.source.data:
        done.reported += reported
        return
    try:
        parse(file.path, encoded)
    except ValueError as error:
        message = f"the file was left as it is: its rewritten form could not be read ({error})"
        place = Place(file.path, 1, 1, WHOLE_FILE)
        shares = keys_in(findings)
        done.reported.append(Reported(Finding("FM903", place, message, shares=shares), Outcome.TODO))
        return
    done.reported += reported
    done.changes.append(FileChange(file.path, file.source.data, encoded))


def _no_names(name: str, position: int) -> str:
    raise AssertionError(f"{name}: names from elsewhere do not occur in configuration")


def _decide(
    file: ConfigFile, findings: Iterable[Finding], options: Options, held: Mapping[Finding, str]
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
        elif found in held:
            reported.append(Reported(found, Outcome.TODO, held[found]))
        else:
            reported.append(Reported(found, Outcome.DONE))
            edits.extend(found.edits)
    return reported, edits
