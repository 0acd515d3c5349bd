"""Writing and undoing: at once or not at all, and always the way back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from codemods.errors import CodemodError
from codemods.model import Options, Rewrite
from codemods.plan import plan_rewrite
from codemods.record import FOLDER
from codemods.sources import find_files
from codemods.undo import restore
from codemods.write import write_rewrite
from tests.program import run_program

ROOT = Path(__file__).parents[2]
TRAIN = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, strategy):
    model = FSDP(model, sharding_strategy=strategy)
    model.clip_grad_norm_(1.0)
    return model
"""
NAMES = ("a.py", "b.py", "package/c.py")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(TRAIN)
    (folder / "a.py").chmod(0o755)
    return folder


def plan(folder: Path) -> Rewrite:
    return plan_rewrite(folder, find_files(folder, [folder]), Options())


def write(folder: Path, rewrite: Rewrite) -> None:
    write_rewrite(folder, rewrite, tool="0", target_torch="2.6")


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mode)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_program(*arguments)


def test_undo_restores_every_byte_and_mode_and_leaves_no_record(project: Path) -> None:
    before = tree(project)
    write(project, plan(project))
    after = tree(project)
    assert all(after[name][0] != before[name][0] for name in NAMES)
    assert after["a.py"][1] == before["a.py"][1]
    assert restore(project).edited == []
    assert tree(project) == before
    assert not (project / FOLDER).exists()


@pytest.mark.parametrize("change", ["edited", "removed", "helper made"])
def test_edit_between_reading_and_writing_stops_everything(change: str, project: Path) -> None:
    rewrite = plan(project)
    if change == "edited":
        (project / "b.py").write_text(TRAIN + "# saved in an editor meanwhile\n")
    elif change == "removed":
        (project / "b.py").unlink()
    else:
        new = next(c.path for c in rewrite.changes if c.before is None)
        (project / new).write_text("# somebody else's\n")
    before = tree(project)
    with pytest.raises(CodemodError) as error:
        write(project, rewrite)
    assert "changed while it was being rewritten; nothing was written" in error.value.message
    assert tree(project) == before


_DIE = """
import os, signal, sys
from pathlib import Path
from codemods.model import Options
from codemods.plan import plan_rewrite
from codemods.write import write_rewrite
from codemods.sources import find_files

folder, at, how = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rewrite = plan_rewrite(folder, find_files(folder, [folder]), Options())
seen = []

def on_file(path):
    seen.append(path)
    if len(seen) == at:
        os.kill(os.getpid(), signal.Signals[how])

write_rewrite(folder, rewrite, tool="0", target_torch="2.6", on_file=on_file)
"""


@pytest.mark.parametrize(("at", "how"), [(1, "SIGKILL"), (3, "SIGKILL"), (2, "SIGINT"), (4, "SIGTERM")])
def test_interrupted_run_is_undone_by_one_command(at: int, how: str, project: Path) -> None:
    before = tree(project)
    died = subprocess.run(
        [sys.executable, "-c", _DIE, str(project), str(at), how],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert died.returncode in (-signal.Signals[how], 1)
    now = tree(project)
    # Every file is as it was or rewritten, never half.
    done = [name for name in NAMES if now[name][0] != before[name][0]]
    assert len(done) <= at - 1
    again = program("rewrite", "--allow-dirty", str(project))
    assert again.returncode == 2
    assert "was interrupted" in again.stderr
    assert f"fsdp-migrate rewrite --undo {project}" in again.stderr
    undone = program("rewrite", "--undo", str(project))
    assert undone.returncode == 0, undone.stderr
    assert tree(project) == before


def test_interrupt_prints_the_command_that_undoes_it(project: Path) -> None:
    text = (
        "import codemods.write as r\n"
        "real = r.write_rewrite\n"
        "def stop(path):\n    if path != 'a.py': raise KeyboardInterrupt\n"
        "r.write_rewrite = lambda *a, **k: real(*a, **k, on_file=stop)\n"
        "from fsdp_migrate.cli.app import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, "rewrite", str(project)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 130
    assert f"`fsdp-migrate rewrite --undo {project}` restores all of them" in done.stderr


def test_tree_that_cannot_be_written_is_said_and_left_alone(project: Path) -> None:
    before = tree(project)
    # What a read-only tree comes to, also for root: the record's folder cannot be made.
    (project / FOLDER).write_text("in the way")
    done = program("rewrite", str(project))
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    (project / FOLDER).unlink()
    assert tree(project) == before


def test_file_that_cannot_be_replaced_is_said_with_the_way_back(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(project)
    real = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if Path(target).name == "c.py" and FOLDER not in Path(target).parts:
            raise OSError(30, "Read-only file system", str(target))
        return real(self, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(CodemodError) as error:
        write(project, plan(project))
    assert error.value.message == f"{project / 'package' / 'c.py'} cannot be written: Read-only file system"
    assert f"rewrite --undo {project}" in error.value.hint
    assert tree(project)["a.py"] != before["a.py"]
    monkeypatch.undo()
    restore(project)
    assert tree(project) == before


def add_fsdp1(path: Path, name: str) -> None:
    path.write_text(path.read_text() + "\n\n" + TRAIN.replace("def train", f"def {name}"))


def test_second_rewrite_keeps_the_first_originals_and_what_was_edited(project: Path) -> None:
    before = tree(project)
    write(project, plan(project))
    add_fsdp1(project / "a.py", "more")
    edited = (project / "a.py").read_bytes()
    write(project, plan(project))
    assert (project / "a.py").read_bytes() != edited
    assert (project / FOLDER / "original" / "a.py").read_text() == TRAIN
    restored = restore(project)
    assert restored.edited == ["a.py"]
    assert (project / "a.py").read_bytes() == edited
    assert {name: now for name, now in tree(project).items() if name != "a.py"} == {
        name: then for name, then in before.items() if name != "a.py"
    }
    assert not (project / FOLDER).exists()


def test_second_rewrite_that_is_interrupted_can_be_undone(project: Path) -> None:
    before = tree(project)
    write(project, plan(project))
    # A new file makes a second rewrite; the helper module changes with it, others need not.
    (project / "d.py").write_text(TRAIN.replace("sharding_strategy=strategy", "mixed_precision=strategy"))
    rewrite = plan(project)

    def stop(path: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rewrite(project, rewrite, tool="0", target_torch="2.6", on_file=stop)
    restore(project)
    (project / "d.py").unlink()
    assert tree(project) == before


def test_undo_refuses_what_was_edited_since(project: Path) -> None:
    write(project, plan(project))
    add_fsdp1(project / "b.py", "more")
    now = tree(project)
    with pytest.raises(CodemodError) as error:
        restore(project)
    assert "edited since the rewrite: b.py" in error.value.message
    assert tree(project) == now


@pytest.mark.parametrize("damage", ["{", "[]", '{"version": 1}', '{"version": 99, "files": []}'])
def test_damaged_record_is_said(damage: str, project: Path) -> None:
    write(project, plan(project))
    (project / FOLDER / "manifest.json").write_text(damage)
    for arguments in (["--undo"], ["--allow-dirty"]):
        (project / "d.py").write_text(TRAIN)
        done = program("rewrite", *arguments, str(project))
        assert done.returncode == 2, done.stderr
        assert "manifest.json" in done.stderr
        assert "Traceback" not in done.stderr


def test_undo_without_a_record_is_bad_usage(project: Path) -> None:
    done = program("rewrite", "--undo", str(project))
    assert done.returncode == 2
    assert "holds no record of a rewrite" in done.stderr


def test_link_outside_the_target_is_written_through(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere" / "shared.py"
    outside.parent.mkdir()
    outside.write_text(TRAIN)
    (project / "shared.py").symlink_to(outside)
    write(project, plan(project))
    assert (project / "shared.py").is_symlink()
    assert "FullyShardedDataParallel" not in outside.read_text()
    assert [path.name for path in outside.parent.iterdir()] == ["shared.py"]
    restore(project)
    assert outside.read_text() == TRAIN


def test_manifest_says_the_rewrite_is_complete(project: Path) -> None:
    write(project, plan(project))
    assert json.loads((project / FOLDER / "manifest.json").read_text())["complete"] is True
