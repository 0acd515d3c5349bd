"""A conversion that goes wrong leaves the destination as it was; one that goes well leaves nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from checkpoint_convert import destination
from checkpoint_convert.convert import ConvertOptions, SourceWatch, convert, make_plan
from checkpoint_convert.errors import (
    CheckpointError,
    DestinationError,
    IncompleteError,
    LayoutError,
    UnreadableError,
)
from checkpoint_convert.model import Contents, SourceFormat
from checkpoint_convert.readers.open import open_source
from checkpoint_convert.write_options import OutputFormat, WriteOptions
from tests.checkpoint_convert.memory_source import MemorySource, sources
from tests.checkpoint_convert.trained import trained_contents

ROOT = Path(__file__).parents[2]
PHASES = ["comparing tied", "writing", "checking"]


@contextlib.contextmanager
def reopen(path: Path) -> Iterator[Contents]:
    with open_source([path]) as contents:
        yield contents


def run(contents: Contents, target: Path, **changes: object) -> None:
    convert(contents, target, ConvertOptions(**changes), reopen=reopen)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- interrupted, killed, out of space: a process of its own ---


def start(target: Path, phase: str, jobs: int) -> subprocess.Popen[str]:
    module = "tests.checkpoint_convert.interrupted_run"
    return subprocess.Popen(
        [sys.executable, "-m", module, str(target), phase, str(jobs)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_leaves_nothing(tmp_path: Path, phase: str, jobs: int) -> None:
    process = start(tmp_path / "out", phase, jobs)
    assert process.stdout is not None
    assert process.stdout.readline() == f"at {phase}\n"
    assert (tmp_path / "out.partial").exists() == (phase != "comparing tied")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert errors == "fsdp-migrate: interrupted\n"
    assert names(tmp_path) == []


@pytest.mark.parametrize("phase", PHASES[1:])
def test_kill_leaves_no_destination_and_the_next_run_cleans_up(tmp_path: Path, phase: str) -> None:
    process = start(tmp_path / "out", phase, 1)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.communicate(timeout=20)
    assert names(tmp_path) == ["out.partial"]
    run(trained_contents(), tmp_path / "out")
    assert names(tmp_path) == ["out"]


def test_two_runs_to_one_destination_do_not_meet(tmp_path: Path) -> None:
    process = start(tmp_path / "out", "writing", 1)
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(DestinationError, match="another conversion is writing"):
        run(trained_contents(), tmp_path / "out")
    assert names(tmp_path) == ["out.partial"]
    process.kill()
    process.communicate(timeout=20)


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    process = start(tmp_path / "out", "no space", 2)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "no space left while writing" in errors
    assert "Traceback" not in errors
    assert names(tmp_path) == []


# --- the destination ---


def test_too_little_space_is_seen_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.statvfs(tmp_path)
    little = os.statvfs_result((full[0], full[1], full[2], 1, 1, *full[5:]))
    monkeypatch.setattr(destination.os, "statvfs", lambda path: little)
    with pytest.raises(DestinationError, match=r"the output needs .* bytes, and .* free"):
        run(trained_contents(), tmp_path / "out")
    assert names(tmp_path) == []


@pytest.mark.parametrize("to", list(OutputFormat))
def test_room_is_asked_for_all_that_many_small_tensors_take(tmp_path: Path, to: OutputFormat) -> None:
    """Headers, the index and the report are most of it then."""
    tensors = {f"layers.{number}.scale": MemorySource(torch.ones(1)) for number in range(300)}
    contents = Contents(SourceFormat.FULL, tensors)
    options = ConvertOptions(WriteOptions(to=to))
    plan = make_plan(contents, tmp_path / "out", options)
    convert(contents, tmp_path / "out", options, reopen=reopen)
    taken = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert taken <= plan.needed_bytes < 1.2 * taken + 4096


def test_what_is_counted_as_room_may_vanish_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "out.partial"
    (left / ".work").mkdir(parents=True)
    for path in (left / "__0_0.distcp", left / "gone.distcp", left / ".work" / "gone"):
        path.write_bytes(bytes(8192))
    lstat = Path.lstat

    def gone(path: Path) -> os.stat_result:
        if "gone" in path.name:
            path.unlink()  # another run did
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", gone)
    destination.check_space(tmp_path / "out", 1)
    assert destination._held_bytes(left) == 8192
    assert sorted(path.name for path in left.rglob("*")) == [".work", "__0_0.distcp"]


def test_what_a_killed_run_left_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_too_little_space_is_seen_before_anything_is_written(tmp_path, monkeypatch)
    left = tmp_path / "out.partial"
    left.mkdir()
    (left / destination.MARK_NAME).touch()
    (left / "__0_0.distcp").write_bytes(bytes(4 << 20))
    os.link(left / "__0_0.distcp", tmp_path / "elsewhere")
    with pytest.raises(DestinationError, match=r"the output needs .* bytes, and .* free"):
        run(trained_contents(), tmp_path / "out")
    (tmp_path / "elsewhere").unlink()
    run(trained_contents(), tmp_path / "out")
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("to", OutputFormat)
def test_an_existing_destination_is_kept_unless_told_otherwise(tmp_path: Path, to: OutputFormat) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "precious").write_text("old")
    (target / ".metadata").write_text("old")
    with pytest.raises(DestinationError, match="exists already") as caught:
        run(trained_contents(), target, write=WriteOptions(to=to))
    assert "--overwrite" in caught.value.hint
    assert names(tmp_path) == ["out"]
    assert names(target) == [".metadata", "precious"]
    run(trained_contents(), target, write=WriteOptions(to=to), overwrite=True)
    assert set(names(tmp_path)) <= {"out", "out.conversion.json"}
    assert target.is_file() if to is OutputFormat.TORCH else "precious" not in names(target)


def test_overwrite_never_deletes_a_directory_that_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("mine")
    with pytest.raises(DestinationError, match="not of a checkpoint"):
        run(trained_contents(), tmp_path / "home", overwrite=True)
    (tmp_path / "empty").mkdir()
    run(trained_contents(), tmp_path / "empty", overwrite=True)
    assert names(tmp_path) == ["empty", "home"]
    assert names(tmp_path / "home") == ["thesis.tex"]


def test_overwrite_never_deletes_a_file_that_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("one.jpg", b"mine")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in before:
        for to in OutputFormat:
            with pytest.raises(DestinationError, match="is a file, and not of a checkpoint"):
                run(trained_contents(), tmp_path / name, write=WriteOptions(to=to), overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("kind", ["zip", "legacy", "empty", "damaged"])
def test_overwrite_replaces_files_of_checkpoints(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "out.pt"
    if kind == "empty":
        target.touch()
    elif kind == "damaged":
        run(trained_contents(), target, write=WriteOptions(to=OutputFormat.TORCH))
        target.write_bytes(target.read_bytes()[:1000])
    else:
        torch.save({"w": torch.ones(2)}, target, _use_new_zipfile_serialization=kind == "zip")
    run(trained_contents(), target, write=WriteOptions(to=OutputFormat.TORCH), overwrite=True)
    assert set(torch.load(target, weights_only=True)) >= {"model", "optim"}


def test_what_has_the_name_of_a_replaced_output_by_chance_is_kept(tmp_path: Path) -> None:
    (tmp_path / "out.replaced").mkdir()
    (tmp_path / "out.replaced" / "thesis.tex").write_text("mine")
    run(trained_contents(), tmp_path / "out")
    with pytest.raises(DestinationError, match=r"out\.replaced is a directory, and not of a checkpoint"):
        run(trained_contents(), tmp_path / "out", overwrite=True)
    assert names(tmp_path) == ["out", "out.replaced"]
    assert names(tmp_path / "out.replaced") == ["thesis.tex"]


@pytest.mark.parametrize("target", ["/", "some/.."])
def test_a_destination_without_a_name_is_refused(target: str) -> None:
    with pytest.raises(DestinationError, match="no name"):
        run(trained_contents(), Path(target), overwrite=True)


def test_files_of_a_pattern_are_watched(tmp_path: Path) -> None:
    (tmp_path / "rank0.pt").write_bytes(b"1")
    watch = SourceWatch([tmp_path / "rank*.pt"])
    watch.check()
    (tmp_path / "rank0.pt").write_bytes(b"12")
    with pytest.raises(IncompleteError, match=r"rank0\.pt changed"):
        watch.check()


def test_a_failed_overwrite_keeps_the_old_output(tmp_path: Path) -> None:
    run(trained_contents(), tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(UnreadableError):
        run(
            trained_contents(model={"w": Short(torch.ones(100))}, aliases={}),
            tmp_path / "out",
            overwrite=True,
        )
    assert names(tmp_path) == ["out"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_a_rename_that_fails_puts_the_old_output_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(trained_contents(), tmp_path / "out")
    before = names(tmp_path / "out")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name == "out.partial":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(DestinationError, match="Input/output error"):
        run(trained_contents(), tmp_path / "out", overwrite=True)
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == before


@pytest.mark.parametrize("failing", ["out.pt.partial/checkpoint.pt", "out.pt.partial/conversion.json"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_file_and_its_report_are_published_together_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, is_first: bool
) -> None:
    target, torch_file = tmp_path / "out.pt", WriteOptions(to=OutputFormat.TORCH)
    if not is_first:
        run(trained_contents(), target, write=torch_file)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def breaking(original: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def moved(self: Path, to: Path) -> Path:
            if self == tmp_path / failing:
                raise OSError(5, "Input/output error")
            return original(self, to)

        return moved

    monkeypatch.setattr(Path, "rename", breaking(Path.rename))
    monkeypatch.setattr(Path, "replace", breaking(Path.replace))
    changed = trained_contents(extras={"epoch": 99})
    with pytest.raises(DestinationError, match="Input/output error"):
        run(changed, target, write=torch_file, overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_foreign_partial_directory_is_not_touched(tmp_path: Path) -> None:
    foreign = tmp_path / "out.partial"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("mine")
    with pytest.raises(DestinationError, match="was not made by fsdp-migrate"):
        run(trained_contents(), tmp_path / "out")
    assert (foreign / "thesis.tex").read_text() == "mine"


def test_the_source_is_never_the_destination(tmp_path: Path) -> None:
    source = tmp_path / "folder" / "source.pt"
    source.parent.mkdir()
    source.write_bytes(b"x")
    for target in (source, source.parent):
        with pytest.raises(DestinationError, match="is the source itself, or contains it"):
            convert(
                trained_contents(),
                target,
                ConvertOptions(overwrite=True),
                reopen=reopen,
                watch=SourceWatch([source]),
            )
    assert source.read_bytes() == b"x"


def test_a_destination_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DestinationError, match="no directory"):
        run(trained_contents(), tmp_path / "file" / "out")


# --- the source ---


class Short(MemorySource):
    """A source that ends early."""

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        return super().blocks(start, stop - 1)


class Long(MemorySource):
    """A source that gives too much."""

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        yield from super().blocks(start, stop)
        yield from super().blocks(0, 1)


@pytest.mark.parametrize("kind", [Short, Long])
@pytest.mark.parametrize("to", OutputFormat)
def test_a_source_of_another_length_than_it_says(
    tmp_path: Path, kind: type[MemorySource], to: OutputFormat
) -> None:
    contents = trained_contents(model={"w": kind(torch.ones(100))}, aliases={})
    with pytest.raises(UnreadableError, match=r"model\.w"):
        run(contents, tmp_path / "out", write=WriteOptions(to=to), jobs=2)
    assert names(tmp_path) == []


@pytest.mark.parametrize("change", ["grown", "touched", "deleted", "replaced"])
def test_a_source_that_changes_meanwhile(tmp_path: Path, change: str) -> None:
    source = tmp_path / "source.pt"
    source.write_bytes(b"12345")
    watch = SourceWatch([source])
    if change == "grown":
        source.write_bytes(b"123456")
    elif change == "touched":
        os.utime(source, (1, 1))
    elif change == "deleted":
        source.unlink()
    else:
        status = source.stat()
        other = tmp_path / "other"
        other.write_bytes(b"54321")
        os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
        other.replace(source)
    with pytest.raises(IncompleteError, match="changed while it was being converted"):
        convert(trained_contents(), tmp_path / "out", ConvertOptions(), reopen=reopen, watch=watch)
    assert "out" not in names(tmp_path)


def test_checksums_found_wrong_at_the_end_stop_the_conversion(tmp_path: Path) -> None:
    def finish() -> None:
        raise UnreadableError("a record's checksum is wrong")

    with pytest.raises(UnreadableError, match="checksum"):
        run(trained_contents(finish=finish), tmp_path / "out")
    assert names(tmp_path) == []


def test_against_a_reference(tmp_path: Path) -> None:
    contents = trained_contents()
    other = dict(contents.model)
    other["up.bias"] = MemorySource(torch.zeros(13))
    del other["down.weight"]
    wrong = replace(contents, model={**other, "more": MemorySource(torch.ones(1))})
    for reference, expected in ((contents, None), (wrong, LayoutError)):
        with contextlib.nullcontext() if expected is None else pytest.raises(expected) as caught:
            convert(contents, tmp_path / "out", ConvertOptions(), reopen=reopen, against=reference)
        if expected is None:
            destination.shutil.rmtree(tmp_path / "out")
    for text in (
        "model.down.weight is only in the source",
        "model.more is only in the reference",
        "model.up.bias has other values",
    ):
        assert text in caught.value.message
    assert names(tmp_path) == []


# --- the check after writing ---


@pytest.mark.parametrize("to", OutputFormat)
def test_every_byte_that_changes_on_disk_is_found(tmp_path: Path, to: OutputFormat) -> None:
    """Flip one byte of each file in turn, all over the file, just before it is read back."""
    contents = trained_contents()
    run(contents, tmp_path / "good", write=WriteOptions(to=to))
    files = [tmp_path / "good"] if to is OutputFormat.TORCH else sorted((tmp_path / "good").rglob("*"))
    data_files = [path for path in files if path.suffix in (".distcp", ".safetensors", "") and path.is_file()]
    assert data_files
    for path in data_files:
        inside = "checkpoint.pt" if to is OutputFormat.TORCH else str(path.relative_to(tmp_path / "good"))
        found = 0
        places = [int(path.stat().st_size * share) for share in (0.02, 0.2, 0.4, 0.6, 0.8)]
        for place in places:
            with pytest.MonkeyPatch.context():
                found += damaged(contents, tmp_path / "bad", to, inside, place)
        # Padding and the parts of zips and pickles that say nothing may change unseen.
        assert found >= 2, f"{inside}: {found} of {len(places)} changes were found"
    assert not (tmp_path / "bad.partial").exists()


def damaged(contents: Contents, target: Path, to: OutputFormat, inside: str, place: int) -> bool:
    opened = []

    @contextlib.contextmanager
    def reopen_damaged(path: Path) -> Iterator[Contents]:
        partial = target.with_name("bad.partial") / inside
        if not opened:
            data = bytearray(partial.read_bytes())
            data[place] ^= 0xFF
            partial.write_bytes(data)
        opened.append(path)
        with open_source([path]) as written:
            yield written

    try:
        convert(contents, target, ConvertOptions(WriteOptions(to=to)), reopen=reopen_damaged)
    except CheckpointError:
        assert not target.exists()
        return True
    destination._remove(target)
    return False


def test_a_changed_tensor_byte_is_always_found(tmp_path: Path) -> None:
    marker = torch.arange(200, dtype=torch.uint8)
    contents = trained_contents(model=sources({"w": marker}), aliases={}, optimizer=None, extras={})
    for place in (0, 57, 199):

        @contextlib.contextmanager
        def reopen_damaged(path: Path, place: int = place) -> Iterator[Contents]:
            partial = tmp_path / "out.partial" / "__0_1.distcp"
            data = bytearray(partial.read_bytes())
            data[data.index(bytes(marker.tolist())) + place] ^= 1
            partial.write_bytes(data)
            with open_source([path]) as written:
                yield written

        with pytest.raises(UnreadableError):
            convert(contents, tmp_path / "out", ConvertOptions(), reopen=reopen_damaged)
        assert names(tmp_path) == []
