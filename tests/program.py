"""Runs `fsdp-migrate` in a fork of this process: a fresh interpreter spends most of a short run on imports.

What depends on a start of its own (what is imported, signals, encodings) is tested in a process of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

_USED = (
    *("fsdp_migrate.__main__", "fsdp_migrate.cli.app", "fsdp_migrate.cli.rewrite", "fsdp_migrate.settings"),
    *("codemods.plan", "codemods.write", "codemods.undo", "codemods.editing.changes", "rich.console"),
    *("fsdp_migrate.reports.rewrite", "fsdp_migrate.reports.rewrite_text", "libcst.metadata"),
    "typer._adapters",  # which imports pydantic, in releases that have it
)


def run_program(
    *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What `fsdp-migrate ARGUMENTS` returned and printed, its standard input being empty.

    Args:
        env: its whole environment; by default that of this process.
    """
    for module in _USED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    importlib.import_module("codemods.rule").all_rules()
    words = [*map(str, arguments)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _become_program(words, (out.fileno(), err.fileno()), cwd, env)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode())
    return subprocess.CompletedProcess(["fsdp-migrate", *words], code, *texts)


def _become_program(
    arguments: list[str], streams: tuple[int, int], cwd: Path | None, env: Mapping[str, str] | None
) -> NoReturn:
    try:
        atexit._clear()  # what this process has to do at its end is not the program's
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, stream in enumerate(streams, 1):
            os.dup2(stream, number)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode, encoding="utf-8") for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        if cwd is not None:
            os.chdir(cwd)
        sys.argv = ["fsdp-migrate", *arguments]
        from fsdp_migrate.__main__ import main

        main()
    except SystemExit as end:
        print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
