"""`fsdp-migrate rewrite` at the prompt: exit codes, what is written, git, reports, interruption."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsdp_migrate.cli.rewrite_options import Given, rewrite_options
from fsdp_migrate.errors import UsageError
from fsdp_migrate.settings import RewriteSettings
from tests.program import run_program

ROOT = Path(__file__).parents[2]
_IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
TRANSLATED = f"{_IMPORT}model = FSDP(model)\n"
LEFT = f"{_IMPORT}models = [FSDP(m) for m in models]\n"


def run(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
    return run_program("rewrite", *arguments, cwd=cwd, env=environment)


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "train.py").write_text(TRANSLATED)
    (folder / ".gitignore").write_text("build/\n")
    (folder / "build").mkdir()
    (folder / "build/copy.py").write_text(TRANSLATED)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "start")
    yield folder


def test_rewrites_in_place_and_says_what_was_done(repo: Path) -> None:
    done = run(repo)
    assert done.returncode == 0, done.stderr
    assert "fully_shard(model)" in (repo / "train.py").read_text()
    assert (repo / "build/copy.py").read_text() == TRANSLATED
    assert "Searched 1 Python file, read 1 of them" in done.stdout
    assert "Changed 1 file; 1 of 1 wrap call translated." in done.stdout
    again = run(repo, "--allow-dirty")
    assert again.returncode == 0 and "No FSDP1 code was found in them." in again.stdout


def test_check_and_diff_write_nothing(repo: Path, tmp_path: Path) -> None:
    check = run(repo, "--check")
    assert check.returncode == 1 and "Would change 1 file" in check.stdout
    diff = run(repo, "--diff")
    assert diff.returncode == 0
    assert (repo / "train.py").read_text() == TRANSLATED and not (repo / ".fsdp-migrate").exists()
    subprocess.run(["git", "apply", "-"], cwd=repo, input=diff.stdout, text=True, check=True)
    by_patch = (repo / "train.py").read_text()
    git(repo, "checkout", "-q", ".")
    run(repo)
    assert (repo / "train.py").read_text() == by_patch


def test_what_is_left_gets_a_todo_and_exit_status_1(repo: Path) -> None:
    (repo / "train.py").write_text(LEFT)
    git(repo, "commit", "-qam", "left")
    done = run(repo)
    assert done.returncode == 1
    text = (repo / "train.py").read_text()
    assert "# TODO(fsdp-migrate FM103): build the modules first" in text
    assert re.search(r"train\.py:3:\d+: FM103 \[left to you\]", done.stdout)
    told = "Line numbers are those before the rewrite"
    assert done.stdout.count(told) == 1
    check = run(repo, "--check")
    assert check.returncode == 1 and "Would change 0 files" in check.stdout and told not in check.stdout
    line = text.splitlines().index("models = [FSDP(m) for m in models]") + 1
    assert line > 3 and re.search(rf"train\.py:{line}:\d+: FM103 \[left to you\]", check.stdout)
    ignored = text.replace("models = [", "# fsdp-migrate: ignore[FM103] kept for comparison\nmodels = [")
    (repo / "train.py").write_text(ignored)
    quiet = run(repo, "--check", "--ignore", "FM516")
    assert quiet.returncode == 0, quiet.stdout
    assert "kept for comparison" in quiet.stdout


def test_a_dirty_tree_is_refused(repo: Path) -> None:
    (repo / "notes.txt").write_text("untracked, and not rewritten\n")
    assert run(repo, "--check").returncode == 1
    (repo / "train.py").write_text(TRANSLATED + "x = 1\n")
    refused = run(repo)
    assert refused.returncode == 2
    assert (
        "uncommitted changes" in refused.stderr
        and "train.py" in refused.stderr
        and "--allow-dirty" in refused.stderr
    )
    assert (repo / "train.py").read_text() == TRANSLATED + "x = 1\n"
    git(repo, "checkout", "-q", ".")
    (repo / "new.py").write_text(TRANSLATED)
    assert run(repo).returncode == 2
    assert run(repo, "--allow-dirty").returncode == 0
    assert "fully_shard" in (repo / "new.py").read_text()


def test_a_renamed_file_is_named_whole(repo: Path) -> None:
    git(repo, "mv", "train.py", "renamed.py")
    (repo / "copy.txt").write_text("new\n")
    git(repo, "add", "-A")
    refused = run(repo)
    assert refused.returncode == 2
    assert re.search(r"uncommitted changes in \S+: copy\.txt, renamed\.py$", refused.stderr, re.MULTILINE)


def test_outside_git_the_originals_are_the_way_back(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRANSLATED)
    assert run(tmp_path).returncode == 0
    for option in ("--check", "--diff"):
        refused = run(tmp_path, "--undo", option)
        assert refused.returncode == 2 and "write nothing" in refused.stderr
        assert (tmp_path / "train.py").read_text() != TRANSLATED
    undone = run(tmp_path, "--undo")
    assert undone.returncode == 0 and "Restored 1 file" in undone.stdout
    assert (tmp_path / "train.py").read_text() == TRANSLATED
    again = run(tmp_path, "--undo")
    assert again.returncode == 2 and "holds no record" in again.stderr


def test_json_report_and_output_file(repo: Path, tmp_path: Path) -> None:
    shown = json.loads(run(repo, "--check", "--format", "json").stdout)
    assert shown["version"] == 1 and shown["written"] is False and shown["searched"] == 1
    assert shown["wrap_sites"] == [
        {"path": "train.py", "line": 3, "form": "inline", "units": "the whole model is one unit"}
    ]
    assert shown["changed"] == [{"path": "train.py", "new": False}]
    report = tmp_path / "report.json"
    saved = run(repo, "--format", "json", "--output", report)
    assert saved.stdout == "" and json.loads(report.read_text())["written"] is True


def test_a_report_that_cannot_be_saved_stops_before_anything_is_written(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for output in (tmp_path / "missing/report.txt", tmp_path, tmp_path / "file/report.txt"):
        blocked = run(repo, "--format", "json", "--output", output)
        assert blocked.returncode == 2 and "cannot be written" in blocked.stderr
        assert (repo / "train.py").read_text() == TRANSLATED and not (repo / ".fsdp-migrate").exists()


def test_a_file_that_does_not_parse_is_reported_and_the_rest_is_done(repo: Path) -> None:
    (repo / "broken.py").write_text("import torch.distributed.fsdp\ndef f(:\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "broken")
    done = run(repo)
    assert done.returncode == 1
    assert "broken.py:1:1: FM901 [left to you] the file cannot be parsed" in done.stdout
    assert "fully_shard" in (repo / "train.py").read_text()


def test_one_file_named_is_the_only_one_changed(repo: Path) -> None:
    (repo / "other.py").write_text(TRANSLATED)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "other")
    (repo / "plain.py").write_text("import train\nimport broken\n")
    (repo / "broken.py").write_text("import torch.distributed.fsdp\ndef f(:\n")
    (repo / "left.py").write_text(LEFT)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "more")
    plain = run("--check", "plain.py", cwd=repo)
    assert plain.returncode == 0, plain.stdout
    assert not re.search(r"(broken|left|train|other)\.py:|could not be read", plain.stdout)
    assert "also stands in 3 files that were not named" in plain.stdout
    assert "left.py, other.py, train.py" in plain.stdout
    assert "No FSDP1 code was found in the files that were named." in plain.stdout
    told = json.loads(run("--check", "--format", "json", "plain.py", cwd=repo).stdout)
    assert told["elsewhere"] == [{"path": f"{n}.py", "findings": 1} for n in ("left", "other", "train")]
    assert run(repo / "other.py").returncode == 0
    assert "fully_shard" in (repo / "other.py").read_text()
    assert (repo / "train.py").read_text() == TRANSLATED


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["missing"], "missing does not exist"),
        ([".", "--target-torch", "2"], "is no version"),
        ([".", "--target-torch", "2.3"], "is too old"),
    ],
)
def test_bad_usage_is_2_and_says_why(arguments: list[str], told: str, tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and told in done.stderr


@pytest.mark.parametrize(
    ("words", "torch", "told"),
    [
        (["fast"], None, "fast is no improvement that can be added"),
        (["prefetch=0"], None, "prefetch=0 is no improvement"),
        (["mesh=dp:8,tp:4"], None, "mesh=dp:8,tp:4 is no improvement"),
        (["mesh=dp:2,dp:4"], None, "mesh=dp:2,dp:4 is no improvement"),
        (["mesh=a:2,b:4,c:2"], None, "mesh=a:2,b:4,c:2 is no improvement"),
        (["mesh=dp:0"], None, "mesh=dp:0 is no improvement"),
        (["mesh=dp:2", "mesh=dp:4"], None, "mesh is asked for in two ways"),
        (["float8=rowwise"], None, "float8=rowwise is no improvement"),
        (["ac=full", "compile,ac=selective"], None, "ac is asked for in two ways"),
        (["prefetch=2"], "2.4", "prefetch=2 needs torch 2.5"),
    ],
)
def test_improvements_that_cannot_be_added(words: list[str], torch: str | None, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)) as raised:
        rewrite_options(Given(modernize=words, target_torch=torch), RewriteSettings())
    assert raised.value.hint


def test_improvements_come_from_the_command_line_or_else_the_settings() -> None:
    settings = RewriteSettings(modernize=("compile",))
    assert rewrite_options(Given(), settings).modernize == ("compile",)
    asked = ["prefetch=2", "ac=full,prefetch=2"]
    assert rewrite_options(Given(modernize=asked), settings).modernize == ("prefetch=2", "ac=full")
    assert rewrite_options(Given(), RewriteSettings()).modernize == ()
    together = ["float8,mesh=replicate:2,shard:8,units", "mesh=replicate:2,shard:8"]
    words = ("float8", "mesh=replicate:2,shard:8", "units")
    assert rewrite_options(Given(modernize=together), RewriteSettings()).modernize == words


def test_exclude_select_and_ignore(repo: Path) -> None:
    assert "Would change 0 files" in run(repo, "--check", "--select", "FM9").stdout
    assert "Would change 0 files" in run(repo, "--check", "--ignore", "FM1").stdout
    assert "Searched 0 Python files" in run(repo, "--check", "--exclude", "train.py").stdout


_STATE_DICTS = """from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

models = [FSDP(m) for m in models]
config = FullStateDictConfig(rank0_only=True)
with FSDP.state_dict_type(
    model,
    StateDictType.FULL_STATE_DICT,
    config,
):
    state = model.state_dict()
kind = StateDictType.LOCAL_STATE_DICT
"""


@pytest.mark.parametrize(
    "options",
    [
        ["--ignore", "FM401"],
        ["--ignore", "FM4"],
        ["--ignore", "FM103"],
        ["--ignore", "FM1,FM4"],
        ["--select", "FM5"],
        ["--select", "FM1,FM516"],
    ],
)
def test_what_is_switched_off_does_not_come_back_as_a_left_over_name(
    options: list[str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(_STATE_DICTS)

    def found(*options: str) -> set[tuple[str, int]]:
        shown = json.loads(run(tmp_path, "--check", "--format", "json", *options).stdout)
        return {(f["code"], f["line"]) for f in shown["findings"]}

    everything = found()
    assert {"FM103", "FM401"} <= {code for code, _ in everything}
    assert found(*options) < everything, "fewer codes, fewer findings"


def test_no_false_all_clear(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    done = run(tmp_path)
    assert done.returncode == 0
    assert (
        "Searched 1 Python file, read 0 of them" in done.stdout and "No FSDP1 code was found" in done.stdout
    )


_SAYS_WHEN_IT_READS = """\
import sys
from codemods import sources
found = sources.find_files
def find_files(*args, **kwargs):
    files = found(*args, **kwargs)
    print("reading", flush=True)
    return files
sources.find_files = find_files
from fsdp_migrate.__main__ import main
main()
"""


def test_interrupted_while_reading_nothing_is_written(tmp_path: Path) -> None:
    for number in range(400):
        text = TRANSLATED + "".join(f"x{i} = [{i}, {i}, ({i}, 'a')]\n" for i in range(400))
        (tmp_path / f"m{number}.py").write_text(text)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _SAYS_WHEN_IT_READS, "rewrite", str(tmp_path)]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "reading\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(("content", "imported"), [("import torch\n", []), (None, ["libcst"])])
def test_rewrite_never_imports_torch_and_libcst_only_where_files_change(
    repo: Path, content: str | None, imported: list[str]
) -> None:
    if content is not None:
        for path in repo.glob("*.py"):
            path.write_text(content)
    program = (
        "import sys\nsys.argv = ['fsdp-migrate', 'rewrite', '--check', '.']\n"
        "from fsdp_migrate.cli.app import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'libcst'} & set(sys.modules)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=repo, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().splitlines()[-1] == str(imported)


def test_explain_and_rules_print_the_manual() -> None:
    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_program(*arguments, env={**os.environ, "NO_COLOR": "1"})

    by_code, by_name = ask("explain", "FM102"), ask("explain", "sharding_strategy")
    assert by_code.returncode == 0 and "shard_model(model, ...)" in by_code.stdout
    assert "NO_SHARD: a named (world, 1) mesh" in by_name.stdout
    unknown = ask("explain", "no_such_rule")
    assert unknown.returncode == 2 and "no rule is called" in unknown.stderr
    hints = {"CK201": "docs/checkpoints.md", "FM4": "FM401, ", "nosync": "no_sync", "FM410x": "FM410"}
    for subject, hint in hints.items():
        assert hint in ask("explain", subject).stderr
    listed, as_json = ask("rules"), ask("rules", "--format", "json")
    records = {record["name"]: record for record in json.loads(as_json.stdout)}
    assert len(records) > 40 and "FM102" in records["FullyShardedDataParallel"]["codes"]
    assert all(record["summary"] and record["manual"] for record in records.values())
    assert {name.split("  [")[0] for name in listed.stdout.splitlines()[::2]} == set(records)
    lines = listed.stdout.splitlines()[1::2]
    assert len(lines) > 40 and all(line.endswith(".") for line in lines), lines
    assert (
        listed.returncode == 0
        and "FullyShardedDataParallel  [FM101, FM102, FM103, FM104, FM108]" in listed.stdout
    )
