"""What an arm writes stays with it: the user's files stay as they were, and both arms start from them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from bench import Bench, bench

from fsdp_migrate.verify import baseline
from fsdp_migrate.verify.baseline import Source
from fsdp_migrate.verify.model import ParityReport, VerifyRequest
from fsdp_migrate.verify.private_files import _Files
from fsdp_migrate.verify.shadow import build, place, shadowed

PROJECT = Path(__file__).parent / "projects" / "endings"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("places"), 2, steps=2, project=PROJECT)


def users_project(folder: Path, *outs: Path) -> Path:
    """A project whose `out` is a link to another disk, with a checkpoint in each output directory."""
    shutil.copytree(PROJECT, folder / "project", ignore=shutil.ignore_patterns("__pycache__"))
    torch.manual_seed(5)
    shapes = {"0.0": (8, 8), "1.0": (8, 8), "2": (4, 8)}
    state = {f"{name}.weight": torch.randn(*shape) for name, shape in shapes.items()}
    state |= {f"{name}.bias": torch.randn(shape[0]) for name, shape in shapes.items()}
    for out in outs:
        out.mkdir(parents=True)
        torch.save(state, out / "last.pt")
    return folder / "project"


def verdict(made: Bench, project: Path, out: str, cwd: Path | None = None) -> ParityReport:
    script = os.path.relpath(project / "train_fsdp2.py", cwd or project)
    before = str(project / "train_fsdp1.py")
    arguments = ("--out", out, "--steps", "2")
    return made.script(VerifyRequest(script, arguments, baseline=before, cwd=cwd or project))


def test_output_directories_of_the_user_are_read_and_not_written(made: Bench, tmp_path: Path) -> None:
    """Linked into the project, beside it, in the directory that the user stands in, and absolute."""
    store, beside, standing = tmp_path / "store", tmp_path / "runs", tmp_path / "standing"
    outs = [store, beside, standing / "out", tmp_path / "far"]
    project = users_project(tmp_path, *outs)
    (project / "out").symlink_to(store)
    before = [(out / "last.pt").read_bytes() for out in outs]
    reports = [
        verdict(made, project, "out"),
        verdict(made, project, "../runs"),
        verdict(made, project, "out", standing),
        verdict(made, project, f"{tmp_path}/far"),
    ]
    for report in reports:
        assert report.passed and not report.warnings, (report.first, report.causes, report.warnings)
        assert report.original.losses == reports[0].original.losses  # each went on from the user's checkpoint
    assert [(out / "last.pt").read_bytes() for out in outs] == before
    assert all([path.name for path in out.iterdir()] == ["last.pt"] for out in outs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["far", "project", "runs", "standing", "store"]


def test_second_arm_that_goes_on_from_the_first_is_named(made: Bench, tmp_path: Path) -> None:
    """A path in a configuration file is no argument: both arms write there."""
    project = users_project(tmp_path)
    (project / "where.txt").write_text(f"{tmp_path}/shared")
    report = verdict(made, project, "@where.txt")
    assert not report.passed
    assert report.causes[0].code == "shared-output"
    assert f"the candidate reads {tmp_path}/shared/last.pt, which the original wrote" in report.causes[0].text
    assert any(
        f"outside of its copy, as both arms do in turn: {tmp_path}/shared" in w for w in report.warnings
    )


def test_links_are_replaced_before_anything_is_written_through_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large files are linked into the copy; directories beside the project are links."""
    monkeypatch.setattr(baseline, "_LINKED_BYTES", 4)
    root, data = tmp_path / "home" / "project", tmp_path / "home" / "data"
    (data / "deep").mkdir(parents=True)
    root.mkdir()
    for path in (root / "big.pt", root / "grows.log", data / "deep" / "one.txt", data / "two.txt"):
        path.write_text("as it was")
    shadow = tmp_path / "temporary" / "trees" / "shadow"
    (tmp_path / "temporary" / "other").mkdir(parents=True)
    build(Source(root, "train.py", ".", {}, "a directory"), shadow, root)
    copy = place(shadow, root)
    assert place(shadow, tmp_path / "temporary" / "other").readlink() == tmp_path / "temporary" / "other"
    told: list[tuple[str, str]] = []
    files = _Files(shadow, tmp_path / "records", (0.0, 0.0), lambda *words: told.append(words))

    def write(path: Path, mode: str) -> None:
        flags = os.O_WRONLY | (os.O_TRUNC if mode == "w" else os.O_APPEND)
        files.heed("open", (str(path), mode, flags))
        with path.open(mode) as stream:
            stream.write(" new")

    write(copy / "big.pt", "w")
    write(copy / "grows.log", "a")
    write(copy / ".." / "data" / "deep" / "one.txt", "a")
    files.heed("os.remove", (str(copy.parent / "data" / "two.txt"), -1))
    (copy.parent / "data" / "two.txt").unlink()
    files.heed("os.mkdir", (str(copy.parent / "data" / "new"), 0o777, -1))
    (copy.parent / "data" / "new").mkdir()
    assert (copy / "big.pt").read_text() == " new"
    assert (copy / "grows.log").read_text() == "as it was new"
    assert (copy.parent / "data" / "deep" / "one.txt").read_text() == "as it was new"
    kept = [root / "big.pt", root / "grows.log", data / "deep" / "one.txt", data / "two.txt"]
    assert [path.read_text() for path in kept] == ["as it was"] * 4
    assert sorted(path.name for path in data.iterdir()) == ["deep", "two.txt"]
    files.heed("open", (str(data), "w", os.O_RDWR | os.O_TMPFILE))
    assert told == []
    files.heed("open", (str(data / "two.txt"), "w", os.O_WRONLY))
    assert told == [("write", str(data / "two.txt"))]


@pytest.mark.parametrize(
    ("word", "led"),
    [
        ("/tmp/run", True),
        ("--out=/tmp/run", True),
        ("key.dir=/tmp", True),
        ("/dev/shm/x", False),
        ("/no-such-directory/x", False),
        ("s3://tmp/x", False),
        ("tmp/run", False),
        ("/", False),
        ("--rate=1/tmp", False),
        ("/think " + "step by step " * 500, False),
    ],
)
def test_absolute_paths_among_arguments_lead_into_the_shadow(tmp_path: Path, word: str, led: bool) -> None:
    (tmp_path / "tmp").mkdir()
    assert shadowed(word, tmp_path) == (word.replace("/tmp", f"{tmp_path}/tmp") if led else word)
