"""Values that are converted without typer are what typer makes of them; wrong ones are left to it."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fsdp_migrate.cli.app import app
from fsdp_migrate.cli.plain_values import Kind, NotPlainError

GROUP: Any = typer.main.get_command(app)
TEXTS = ("", "x", "3", "03", " 3", "-1", "0", "1", "1_0", "٣", "99999999999", "text", "TEXT", "dcp", "true")


def parameters() -> list[tuple[Any, Kind, Any]]:
    """Every parameter that is converted here: itself, its kind, and how typer converts it."""
    found = []
    for command in (GROUP, *(GROUP.get_command(None, name) for name in GROUP.list_commands(None))):
        for parameter in command.params:
            process = parameter.__dict__.get("process_value")
            if isinstance(process, partial):
                found.append((parameter, process.args[0], process.args[1]))
    return found


def values(kind: Kind, here: Path) -> list[object]:
    file = here / "file"
    file.write_text("")
    one: list[object] = [*TEXTS, True, False, 0, 2, str(file), str(here), str(here / "absent")]
    one += [choice.value for choice in kind.of] if hasattr(kind.of, "__members__") else []
    return [(), ("x", "y"), [str(file)]] if kind.many else [None, *one]


def test_a_plain_value_is_what_typer_makes_of_it(tmp_path: Path) -> None:
    checked = 0
    context = GROUP.make_context("fsdp-migrate", [], resilient_parsing=True)
    for parameter, kind, by_typer in parameters():
        for value in values(kind, tmp_path):
            try:
                plain = kind.plain(value)
            except NotPlainError:
                continue
            made = by_typer(context, value)
            assert (plain, type(plain)) == (made, type(made)), (parameter.name, value)
            checked += 1
    assert checked > 400


def test_most_parameters_are_plain() -> None:
    asked = [kind.of.__name__ for _, kind, _ in parameters()]
    assert len(asked) > 60 and {"str", "bool", "int", "Path", "Preset"} <= set(asked)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--jobs", "0"], "greater than or equal to 1"),
        (["--jobs", "two"], "integer"),
        (["--to", "zip"], "'zip'"),
    ],
)
def test_a_wrong_value_is_worded_by_typer(words: list[str], said: str, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["convert-ckpt", *words, "a.pt", str(tmp_path / "out")])
    assert shown.exit_code == 2
    assert said in shown.stderr


def test_a_missing_argument_is_named() -> None:
    shown = CliRunner().invoke(app, ["convert-ckpt"])
    assert shown.exit_code == 2
    assert "Missing argument 'SRC...'" in shown.stderr
