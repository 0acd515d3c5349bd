"""`[tool.fsdp-migrate.verify]` of pyproject.toml: the job of a repository and how it is started.

An option on the command line takes the place of the setting. Paths are seen from the file's directory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdp_migrate.errors import UsageError

if TYPE_CHECKING:
    import typer

    from fsdp_migrate.verify.model import Device, LaunchOptions, VerifyRequest
    from fsdp_migrate.verify.resumed import Resumed

_TABLE = "tool.fsdp-migrate.verify"
_KINDS: dict[str, tuple[type, ...]] = {
    "script": (str,),
    "module": (str,),
    "arguments": (list,),
    "baseline": (str,),
    "nproc": (int,),
    "steps": (int,),
    "device": (str,),
    "timeout": (int, float),
    "strict": (bool,),
    "exact": (bool,),
    "checkpoint": (str,),
    "convert": (str,),
}
_OF_THE_JOB = ("script", "module", "arguments", "checkpoint", "convert")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What can stand in the file as well as on the command line.

    Args:
        cwd: where the job is started.
    """

    script: str | None
    arguments: tuple[str, ...]
    module: str | None
    baseline: str | None
    nproc: int
    steps: int
    device: Device
    timeout: float
    strict: bool
    exact: bool = False
    checkpoint: Path | None = None
    convert: str = ""
    cwd: Path = field(default_factory=Path.cwd)

    def request(self, launch: LaunchOptions, checkpoint: Resumed | None = None) -> VerifyRequest | None:
        """The user's job; `None` where it is the reference job that runs."""
        from fsdp_migrate.verify.model import VerifyRequest

        given = [*(() if self.script is None else (self.script,)), *self.arguments]
        if self.module is None and self.script is None:
            return None
        name, rest = (given[0], given[1:]) if self.module is None else (self.module, given)
        return VerifyRequest(
            name, tuple(rest), self.module is not None, self.baseline, self.cwd, launch, checkpoint
        )


def settled(context: typer.Context, chosen: Chosen) -> Chosen:
    """What stands on the command line, and where nothing does what the file says.

    Raises:
        UsageError: the file cannot be read, or a key or value is not one of ours.
    """
    from fsdp_migrate.cli.verify_options import is_given
    from fsdp_migrate.settings import verify_table

    path, table = verify_table(chosen.cwd)
    if path is None:
        return chosen
    _check(path, table)
    found: dict[str, Any] = {key: value for key, value in table.items() if not is_given(context, key)}
    if "checkpoint" in found:
        found["checkpoint"] = path.parent / found["checkpoint"]
    if chosen.script is not None or chosen.module is not None:  # another job than the file's
        found = {k: v for k, v in found.items() if k not in _OF_THE_JOB}
    elif "script" in found or "module" in found:
        found |= {"cwd": path.parent, "arguments": tuple(found.get("arguments", ())) + chosen.arguments}
    else:
        for key in ("arguments", "baseline"):
            found.pop(key, None)
    return replace(chosen, **found)


def _check(path: Path, table: dict[str, Any]) -> None:
    for key, value in table.items():
        kinds = _KINDS.get(key)
        if kinds is None:
            raise UsageError(
                f"{path}: unknown key {key} in [{_TABLE}]", hint=f"Known keys: {', '.join(_KINDS)}."
            )
        if type(value) not in kinds:  # bool is an int to isinstance
            raise UsageError(
                f"{path}: `{key}` in [{_TABLE}] is no {' or '.join(kind.__name__ for kind in kinds)}"
            )
        if key == "arguments" and not all(isinstance(one, str) for one in value):
            raise UsageError(f"{path}: `arguments` in [{_TABLE}] is no list of strings")
        if key in ("nproc", "steps", "timeout") and value < 1:
            raise UsageError(f"{path}: `{key}` in [{_TABLE}] is less than 1")
        if key == "device" and value not in ("auto", "cuda", "cpu"):
            raise UsageError(f"{path}: `device` in [{_TABLE}] is none of auto, cuda, cpu")
    if "script" in table and "module" in table:
        raise UsageError(f"{path}: [{_TABLE}] names both a script and a module")
