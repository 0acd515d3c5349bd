"""Every command has help with an example; bad usage is answered with 2; neither imports anything heavy."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fsdp_migrate import console
from fsdp_migrate.cli.app import app

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from fsdp_migrate.cli.app import main; main()"
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def imported(done: subprocess.CompletedProcess[str]) -> set[str]:
    return {
        line.rsplit("|", 1)[-1].strip()
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }


def said(done: subprocess.CompletedProcess[str]) -> str:
    return "\n".join(line for line in done.stderr.splitlines() if not line.startswith("import time:"))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example_and_imports_nothing_heavy(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0, said(done)
    assert f"fsdp-migrate {command}" in done.stdout
    assert not imported(done) & {"torch", "libcst", "numpy", "transformers", "pydantic"}


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_option_is_bad_usage(command: str) -> None:
    done = run(command, "--no-such-option")
    assert done.returncode == 2
    assert "--no-such-option" in said(done)
    assert "Traceback" not in said(done)


def test_unknown_command_is_bad_usage() -> None:
    done = run("convert")
    assert done.returncode == 2
    assert "No such command 'convert'" in said(done)
    assert done.stdout == ""


def test_demo_says_that_its_directory_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("demo", "--directory", str(tmp_path / "file" / "demo"))
    assert done.returncode == 2
    assert f"{tmp_path / 'file' / 'demo'}: it cannot be made" in said(done)


def test_demo_keeps_out_of_a_directory_with_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("irreplaceable")
    done = run("demo", "--directory", str(tmp_path))
    assert done.returncode == 2
    assert f"{tmp_path} is not an empty directory" in said(done)
    assert "--directory" in said(done)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("nproc", ["1", "5", "two"])
def test_demo_refuses_ranks_that_cannot_share_its_batch(nproc: str, tmp_path: Path) -> None:
    done = run("demo", "--nproc", nproc, "--directory", str(tmp_path / "new"))
    assert done.returncode == 2
    assert "--nproc" in said(done)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("flag", ["-v", "-q", "-vv", "--verbose", "--quiet", "--no-color"])
@pytest.mark.parametrize("after", [False, True])
def test_global_options_stand_before_or_after_the_command(flag: str, after: bool) -> None:
    words = ("explain", flag, "FM401") if after else (flag, "explain", "FM401")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert console.verbosity() == {"-v": 1, "--verbose": 1, "-vv": 2, "--no-color": 0}.get(flag, -1)


def test_what_follows_two_dashes_is_the_scripts() -> None:
    done = CliRunner().invoke(app, ["verify", "nowhere.py", "--", "-v"])
    assert done.exit_code == 2 and console.verbosity() == 0


def test_no_command_has_an_option_that_is_spelled_like_a_global_one() -> None:
    group = typer.main.get_command(app)
    taken = {"-v", "-q", "--verbose", "--quiet", "--no-color"}
    assert taken <= {spelling for option in group.params for spelling in option.opts}
    for name in COMMANDS:
        command = group.get_command(None, name)  # type: ignore[attr-defined]
        assert not taken & {spelling for option in command.params for spelling in option.opts}, name


def test_help_imports_no_command() -> None:
    done = run("--help")
    assert all(name in done.stdout for name in COMMANDS)
    packages = ("fsdp_migrate", "codemods", "checkpoint_convert")
    assert {name for name in imported(done) if name.startswith(packages)} == {
        "fsdp_migrate",
        "fsdp_migrate.cli",
        "fsdp_migrate.cli.app",
        "fsdp_migrate.cli.commands",
        "fsdp_migrate.cli.plain_values",
        "fsdp_migrate.exit_codes",
    }


def test_a_misspelt_command_gets_the_nearest_name() -> None:
    shown = CliRunner().invoke(app, ["verfy"])
    assert shown.exit_code == 2
    assert "'verify'" in shown.stderr


UNIX_ONLY = (
    "pwrite",
    "preadv",
    "pread",
    "fork",
    "posix_fadvise",
    "sched_getaffinity",
    "O_DIRECTORY",
    "killpg",
)
AS_ON_WINDOWS = f"""
import os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in {UNIX_ONLY}:
    delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2"):
    delattr(signal, name)
from fsdp_migrate.cli.app import main
main()
"""


def test_code_is_rewritten_where_unix_calls_are_not(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
        "def shard(model):\n    return FSDP(model)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", AS_ON_WINDOWS, "rewrite", "--jobs", "2", "--diff", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "+    return fully_shard(model)\n" in done.stdout, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("convert-ckpt", "old.pt", "new"),
        ("inspect-ckpt", "old.pt"),
        ("verify-ckpt", "new"),
        ("verify", "train.py"),
        ("demo",),
    ],
)
def test_what_windows_lacks_the_calls_for_is_refused(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "this command needs Linux or macOS" in done.stderr
    assert "under WSL" in done.stderr
