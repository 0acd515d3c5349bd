"""The commands by name. A module is imported when its command is asked for: `--help` needs none of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fsdp_migrate.exit_codes import ExitCode


@dataclass(frozen=True, slots=True)
class Entry:
    """A command.

    Attributes:
        module: in `fsdp_migrate.cli`; cheap to import, what the command needs is imported when it runs.
        function: its name in the module.
        summary: one line for `--help`.
        command_class: name of the module's own class of command, if it has one.
        unix_only: it needs what Windows does not have (positioned reads and writes, file locks, forks).
    """

    module: str
    function: str
    summary: str
    command_class: str = ""
    unix_only: bool = False

    def load(self) -> tuple[Callable[..., ExitCode], Any]:
        """The function, and the class of the command (None for typer's own)."""
        module = importlib.import_module(f"fsdp_migrate.cli.{self.module}")
        own = getattr(module, self.command_class) if self.command_class else None
        return getattr(module, self.function), own


COMMANDS = {
    "rewrite": Entry("rewrite", "rewrite", "Rewrite FSDP1 code into FSDP2 code."),
    "explain": Entry("explain", "explain", "Print the manual page of a rule."),
    "rules": Entry("explain", "rules", "List every rule and its codes."),
    "convert-ckpt": Entry("convert_ckpt", "convert_ckpt", "Convert FSDP1 checkpoints.", unix_only=True),
    "inspect-ckpt": Entry("inspect_ckpt", "inspect_ckpt", "Print what a checkpoint holds.", unix_only=True),
    "verify-ckpt": Entry("verify_ckpt", "verify_ckpt", "Check a converted checkpoint again.", unix_only=True),
    "capture-layout": Entry("capture_layout", "capture_layout", "Write a layout.json for flat checkpoints."),
    "verify": Entry(
        "verify", "verify", "Compare the original and the converted job.", "ScriptCommand", unix_only=True
    ),
    "plan": Entry("plan", "plan", "Tell the memory per GPU under FSDP1 and FSDP2.", unix_only=True),
    "demo": Entry("demo", "demo", "Take a bundled project down the whole road.", unix_only=True),
}
