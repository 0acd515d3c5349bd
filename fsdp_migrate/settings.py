"""`[tool.fsdp-migrate]` of pyproject.toml: the options of `rewrite` that belong to a repository.

Found in the target or in a directory above it, no further than its git repository. An option on the command
line takes the place of the setting; patterns of `--exclude` are added to those of the file.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fsdp_migrate.errors import UsageError

TABLE = "tool.fsdp-migrate"
_OTHER_COMMANDS = frozenset({"verify"})


@dataclass(frozen=True, slots=True)
class RewriteSettings:
    """What the repository says; None where it says nothing.

    Attributes:
        path: the pyproject.toml it says it in; None without one.
        select, ignore: codes, prefixes of codes (`FM3`) or names of rules.
        exclude: patterns as in .gitignore.
    """

    path: Path | None = None
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    unsafe_fixes: bool | None = None
    drop_fsdp1: bool | None = None
    whole_only: bool | None = None
    target_torch: str | None = None
    modernize: tuple[str, ...] | None = None


_LISTS = ("select", "ignore", "exclude", "modernize")
_SWITCHES = ("unsafe-fixes", "drop-fsdp1", "whole-only")
_KEYS = (*_LISTS, *_SWITCHES, "target-torch")


def rewrite_settings(target: Path) -> RewriteSettings:
    """The settings that hold for a target directory.

    Raises:
        UsageError: the file cannot be read, or a key or value is not one of ours.
    """
    for folder in (target, *target.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            found = _table(path)
            if found is not None:
                return _checked(path, found)
        if (folder / ".git").exists():
            break
    return RewriteSettings()


def verify_table(start: Path) -> tuple[Path | None, dict[str, Any]]:
    """`[tool.fsdp-migrate.verify]` for a directory, and the file it stands in.

    Raises:
        UsageError: the file cannot be read, or what stands there is no table.
    """
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file() and (table := _table(path)) is not None and "verify" in table:
            found = table["verify"]
            if not isinstance(found, dict):
                raise UsageError(f"{path}: `verify` in [{TABLE}] is no table")
            return path, found
        if (folder / ".git").exists():
            break
    return None, {}


def _table(path: Path) -> Mapping[str, object] | None:
    try:
        # The cheap look first: most files have no table of ours.
        data = path.read_bytes()
        if b"fsdp-migrate" not in data:
            return None
        parsed = _toml().loads(data.decode("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="Mend the file.") from error
    tool = parsed.get("tool", {})
    found = tool.get("fsdp-migrate") if isinstance(tool, dict) else None
    if found is not None and not isinstance(found, dict):
        raise UsageError(f"{path}: `{TABLE}` is no table", hint=f"Write [{TABLE}] and its keys below.")
    return found


def _toml() -> ModuleType:
    """The reader of TOML; only imported where there is something to read."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib


def _checked(path: Path, table: Mapping[str, object]) -> RewriteSettings:
    unknown = sorted(set(table) - set(_KEYS) - _OTHER_COMMANDS)
    if unknown:
        near = [n for key in unknown for n in difflib.get_close_matches(key.replace("_", "-"), _KEYS, n=1)]
        hint = f"Perhaps: {', '.join(near)}. " if near else ""
        raise UsageError(
            f"{path}: unknown key {', '.join(unknown)} in [{TABLE}]",
            hint=f"{hint}Known keys: {', '.join(_KEYS)}.",
        )
    return RewriteSettings(
        path=path,
        select=_strings(path, table, "select"),
        ignore=_strings(path, table, "ignore"),
        exclude=_strings(path, table, "exclude") or (),
        unsafe_fixes=_switch(path, table, "unsafe-fixes"),
        drop_fsdp1=_switch(path, table, "drop-fsdp1"),
        whole_only=_switch(path, table, "whole-only"),
        target_torch=_string(path, table, "target-torch"),
        modernize=_strings(path, table, "modernize"),
    )


def _strings(path: Path, table: Mapping[str, object], key: str) -> tuple[str, ...] | None:
    value = table.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(
            f"{path}: `{key}` in [{TABLE}] is no list of strings", hint=f'Write {key} = ["..."].'
        )
    return tuple(value)


def _switch(path: Path, table: Mapping[str, object], key: str) -> bool | None:
    value = table.get(key)
    if value is not None and not isinstance(value, bool):
        raise UsageError(
            f"{path}: `{key}` in [{TABLE}] is neither true nor false", hint=f"Write {key} = true."
        )
    return value


def _string(path: Path, table: Mapping[str, object], key: str) -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{path}: `{key}` in [{TABLE}] is no string", hint=f'Write {key} = "2.6".')
    return value
