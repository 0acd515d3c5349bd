"""How `demo` shows its stages: words with brackets stay, the summary goes to stdout, the rest to stderr."""

import json

import pytest

from fsdp_migrate.cli.demo import _Narrator, _print_json, _print_table
from fsdp_migrate.demo.stages import Outcome, RoadReport, Stage

STAGE = Stage("Train [a]", "torchrun train.py --out [b]", Outcome.FAILED, "no [c] in [/d]", 1.25)
REPORT = RoadReport((STAGE,), 2.5)


def test_table_shows_brackets_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    _print_table(REPORT)
    out, err = capsys.readouterr()
    for word in ("Train [a]", "no [c] in [/d]", "1.2", "2.5", "failed"):
        assert word in out
    assert err == ""


def test_json_holds_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    _print_json(REPORT)
    whole = json.loads(capsys.readouterr().out)
    assert whole["outcome"] == "failed"
    assert whole["seconds"] == 2.5
    assert whole["stages"] == [
        {
            "title": "Train [a]",
            "command": "torchrun train.py --out [b]",
            "outcome": "failed",
            "result": "no [c] in [/d]",
            "seconds": 1.25,
        }
    ]


def test_narrator_speaks_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    narrator = _Narrator()
    narrator.started(STAGE.title, STAGE.command)
    narrator.finished(STAGE)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Train [a]" in err
    assert "$ torchrun train.py --out [b]" in err
    assert "failed, 1.2 s: no [c] in [/d]" in err
