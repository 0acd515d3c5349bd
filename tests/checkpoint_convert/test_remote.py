"""Sources and destinations behind URLs: memory, a web server, and a server of the S3 protocol."""

from __future__ import annotations

import contextlib
import errno
import functools
import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from moto.server import ThreadedMotoServer
from torch.distributed import checkpoint as dcp
from typer.testing import CliRunner, Result

from checkpoint_convert import job, journal, remote_source
from checkpoint_convert.convert import ConvertOptions, SourceWatch, convert
from checkpoint_convert.errors import CheckpointError
from checkpoint_convert.model import Contents
from checkpoint_convert.ranks import Ranks
from checkpoint_convert.readers.open import open_source
from checkpoint_convert.remote_target import RemoteTarget
from checkpoint_convert.sent_record import NOTE_NAME
from checkpoint_convert.write_options import OutputFormat, WriteOptions
from fsdp_migrate.cli.app import app
from fsdp_migrate.cli.places import stand_ins

WEIGHTS = {
    f"layers.{n}.weight": torch.randn(300, 400, generator=torch.Generator().manual_seed(n)) for n in range(24)
}
"""11 MB: more than what is fetched at once."""


SPLIT = WriteOptions(chunk_bytes=300_000, file_bytes=3_000_000)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["-q", *map(str, arguments)])


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("full") / "full.pt"
    torch.save({"model": WEIGHTS, "epoch": 3}, path)
    return path


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of a local S3 server."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("checkpoints")
        yield "s3://checkpoints"
    server.stop()


def loaded(folder: Path) -> dict[str, torch.Tensor]:
    """A DCP directory's model, loaded by torch."""
    model = {name: torch.zeros_like(weight) for name, weight in WEIGHTS.items()}
    dcp.load({"model": model}, checkpoint_id=folder)
    return model


def assert_equal(found: dict[str, torch.Tensor]) -> None:
    assert found.keys() == WEIGHTS.keys()
    assert all(torch.equal(found[name], weight) for name, weight in WEIGHTS.items())


def down(system: fsspec.AbstractFileSystem, url: str, target: Path) -> Path:
    """A remote folder, copied here."""
    root = system._strip_protocol(url)
    for path in system.find(root):
        local = target / path[len(root) :].lstrip("/")
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes(system.cat_file(path))
    return target


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_there_and_back(
    kind: str, full: Path, tmp_path: Path, memory: object, request: pytest.FixtureRequest
) -> None:
    base = "memory://ckpt" if kind == "memory" else request.getfixturevalue("bucket")
    system = fsspec.filesystem(kind)
    system.put_file(str(full), f"{base}/in/full.pt")

    done = run("convert-ckpt", f"{base}/in/full.pt", f"{base}/out")
    assert done.exit_code == 0, done.output
    assert f"full -> {base}/out (dcp)" in done.output
    assert "read back and equal" in done.output
    system.invalidate_cache()
    assert_equal(loaded(down(system, f"{base}/out", tmp_path / "out")))
    names = {path.rpartition("/")[2] for path in system.find(f"{base}/out")}
    assert names == {".metadata", "conversion.json", "__0_0.distcp", "__0_1.distcp"}

    checked = run("verify-ckpt", f"{base}/out")
    assert checked.exit_code == 0, checked.output
    assert checked.output.startswith(f"{base}/out: as written; 24 tensors")
    scalars = f"{base}/out/__0_0.distcp"
    whole = system.cat_file(scalars)
    system.pipe_file(scalars, whole.replace(b"archive/version", b"archive/verslon"))
    harmed = run("verify-ckpt", f"{base}/out")
    assert harmed.exit_code == 1 and "file __0_0.distcp has other bytes" in harmed.output
    system.pipe_file(scalars, whole)
    shown = run("inspect-ckpt", f"{base}/out", "--format", "json")
    assert shown.exit_code == 0, shown.output

    back = run("convert-ckpt", f"{base}/out", tmp_path / "back.pt", "--to", "torch")
    assert back.exit_code == 0, back.output
    assert_equal(torch.load(tmp_path / "back.pt")["model"])
    assert torch.load(tmp_path / "back.pt")["epoch"] == 3


@pytest.mark.parametrize("kind", ["memory", "s3"])
@pytest.mark.parametrize("to", ["torch", "safetensors"])
def test_other_forms(
    kind: str, to: str, full: Path, tmp_path: Path, memory: object, request: pytest.FixtureRequest
) -> None:
    base = "memory://forms" if kind == "memory" else request.getfixturevalue("bucket") + "/forms"
    system = fsspec.filesystem(kind)
    done = run("convert-ckpt", full, f"{base}/{to}", "--to", to, "--only", "model")
    assert done.exit_code == 0, done.output
    system.invalidate_cache()
    names = {path.rpartition("/")[2] for path in system.find(base) if f"/{to}" in path}
    if to == "torch":
        assert names == {"torch", "torch.conversion.json"}
    else:
        assert names == {"model.safetensors", "conversion.json"}
    assert run("verify-ckpt", f"{base}/{to}").exit_code == 0
    back = run("convert-ckpt", f"{base}/{to}", tmp_path / "back", "--jobs", "2")
    assert back.exit_code == 0, back.output
    assert_equal(loaded(tmp_path / "back"))


def test_only_what_is_needed_is_held_here(
    full: Path, memory: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    memory.put_file(str(full), "memory://in/full.pt")
    mirror = remote_source.Mirror(tmp_path)
    try:
        path = mirror.local("memory://in/full.pt")
        assert path.stat().st_size == full.stat().st_size
        assert path.stat().st_blocks * 512 < 2 << 20
    finally:
        mirror.close()
    assert list(tmp_path.iterdir()) == []


def test_a_pattern_and_rank_files(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    for rank in range(2):
        torch.save({"w": torch.ones(3), "b": torch.zeros(2)}, tmp_path / f"rank{rank}.pt")
        memory.put_file(str(tmp_path / f"rank{rank}.pt"), f"memory://run/rank{rank}.pt")
    shown = run("inspect-ckpt", "memory://run/rank*.pt", "--format", "json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.output)["world_size"] in (None, 2)


def test_a_pattern_of_folders(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    """Files of one name in several folders stay apart, and are named as they are."""
    for rank in range(2):
        torch.save({"w": torch.full((3, 2), float(rank))}, tmp_path / "model.pt")
        memory.put_file(str(tmp_path / "model.pt"), f"memory://run/r{rank}/model.pt")
    for pattern in ("memory://run/r*/model.pt", "memory://run/r*"):
        shown = run("inspect-ckpt", pattern)
        assert shown.exit_code == 1
        assert "2 whole checkpoints that differ" in shown.output
        assert "memory://run/r0/model.pt" in shown.output


@pytest.mark.parametrize("below", ["", "/full.pt"], ids=["itself", "contained"])
def test_a_source_is_never_overwritten(
    below: str, full: Path, memory: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    assert run("convert-ckpt", full, "memory://ckpt").exit_code == 0
    if below:
        memory.put_file(str(full), "memory://ckpt/full.pt")
    before = {path: memory.cat_file(path) for path in memory.find("memory://ckpt")}
    done = run("convert-ckpt", f"memory://ckpt{below}", "memory://ckpt/", "--overwrite", "--only", "model")
    assert done.exit_code == 2
    assert "memory://ckpt/ is the source itself, or contains it" in done.output
    assert {path: memory.cat_file(path) for path in memory.find("memory://ckpt")} == before


def test_a_path_as_url(full: Path, tmp_path: Path) -> None:
    """`file://` is a path, with all that holds for one: its source is not overwritten either."""
    assert run("convert-ckpt", f"file://{full}", f"file://{tmp_path}/out").exit_code == 0
    assert_equal(loaded(tmp_path / "out"))
    done = run("convert-ckpt", tmp_path / "out", f"file://{tmp_path}/out", "--overwrite", "--to", "dcp")
    assert done.exit_code == 2
    assert "is the source itself" in done.output
    assert_equal(loaded(tmp_path / "out"))


def test_what_cannot_be_written_replaces_nothing(full: Path, memory: fsspec.AbstractFileSystem) -> None:
    assert run("convert-ckpt", full, "memory://ckpt").exit_code == 0
    done = run("convert-ckpt", full, "memory://ckpt", "--overwrite", "--to", "safetensors", "--shards", "2")
    assert done.exit_code == 2
    assert run("verify-ckpt", "memory://ckpt").exit_code == 0


def test_of_two_conversions_to_one_url_the_later_one_counts(
    full: Path, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = RemoteTarget.commit

    def late(self: RemoteTarget) -> None:
        monkeypatch.setattr(RemoteTarget, "commit", commit)
        assert run("convert-ckpt", full, "memory://ckpt").exit_code == 0
        commit(self)

    monkeypatch.setattr(RemoteTarget, "commit", late)
    done = run("convert-ckpt", full, "memory://ckpt", "--dtype", "bfloat16")
    assert done.exit_code == 2
    assert "memory://ckpt was taken by another conversion" in done.output
    assert run("verify-ckpt", "memory://ckpt").exit_code == 0


def test_a_destination_that_is_taken(full: Path, memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe_file("memory://taken/notes.txt", b"mine")
    done = run("convert-ckpt", full, "memory://taken")
    assert done.exit_code == 2
    assert "memory://taken exists already" in done.output
    done = run("convert-ckpt", full, "memory://taken", "--overwrite")
    assert done.exit_code == 2
    assert "is not of a checkpoint: --overwrite leaves it alone" in done.output
    assert memory.cat_file("memory://taken/notes.txt") == b"mine"
    assert run("convert-ckpt", full, "memory://free").exit_code == 0
    assert run("convert-ckpt", full, "memory://free", "--overwrite").exit_code == 0
    assert run("verify-ckpt", "memory://free").exit_code == 0


def test_what_fails_on_the_way_leaves_nothing(
    full: Path, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = type(memory).put_file

    def broken(self: object, source: str, target: str, **options: object) -> None:
        put(self, source, target, **options)
        if target.endswith("__0_1.distcp"):
            data = bytearray(memory.cat_file(target))
            at = data.index(WEIGHTS["layers.3.weight"].numpy().tobytes()[:64])
            data[at] ^= 1
            memory.pipe_file(target, bytes(data))

    monkeypatch.setattr(type(memory), "put_file", broken)
    done = run("convert-ckpt", full, "memory://out")
    assert done.exit_code == 2
    assert "CRC-32" in done.output
    assert memory.find("memory://out") == []


def by_ranks(full: Path, url: str, staging: Path, write: WriteOptions) -> list[str]:
    """Convert by two ranks, which share a folder; what each ended with."""
    ends = ["", ""]

    def one(rank: int) -> None:
        options = ConvertOptions(write, ranks=Ranks(rank, 2))
        try:
            with stand_ins(staging) as places, open_source([full]) as contents:
                target = places.target(url, options)
                with target.open() as chosen:
                    convert(contents, target.path, chosen, reopen=reopen, watch=SourceWatch([full]))
        except CheckpointError as error:
            ends[rank] = error.message

    def reopen(path: Path) -> AbstractContextManager[Contents]:
        return open_source([path])

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return ends


@pytest.mark.parametrize("to", list(OutputFormat))
def test_ranks_put_it_together_in_a_folder_and_one_sends_it(
    full: Path, memory: fsspec.AbstractFileSystem, tmp_path: Path, to: OutputFormat
) -> None:
    assert by_ranks(full, "memory://out", tmp_path, WriteOptions(to=to)) == ["", ""]
    assert list(tmp_path.iterdir()) == []
    assert run("verify-ckpt", "memory://out").exit_code == 0
    assert not any("partial" in path for path in memory.find(""))


def test_ranks_that_are_lost_are_gone_on_with(
    full: Path, memory: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    transfer = job.transfer

    def noted(*arguments: Any) -> Any:
        written.extend(arguments[4])
        return transfer(*arguments)

    def lost(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(job, "transfer", noted)
    with monkeypatch.context() as patch:
        patch.setattr(job, "check_output", lost)
        ends = by_ranks(full, "memory://out", tmp_path, WriteOptions())
    assert all("Input/output error" in end or "rank" in end for end in ends), ends
    assert sorted(written) == list(range(len(WEIGHTS)))
    assert memory.find("memory://out") == []
    written.clear()
    assert by_ranks(full, "memory://out", tmp_path, WriteOptions()) == ["", ""]
    assert written == []
    assert run("verify-ckpt", "memory://out").exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_are_lost_while_one_sends_are_gone_on_with(
    full: Path, memory: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    written: list[int] = []
    put, transfer = RemoteTarget._put, job.transfer

    def lost(self: RemoteTarget, path: Path, name: str) -> None:
        if len(sent) == 3:
            raise ConnectionError("lost")
        sent.append(name)
        put(self, path, name)

    def noted(*arguments: Any) -> Any:
        written.extend(arguments[4])
        return transfer(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(RemoteTarget, "_put", lost)
        patch.setattr(RemoteTarget, "give_up", lambda *_: None)
        assert "lost" in by_ranks(full, "memory://out", tmp_path, SPLIT)[0]
    first, sent[:] = list(sent), []
    assert len(first) == 3
    monkeypatch.setattr(RemoteTarget, "_put", lambda *a: sent.append(a[2]) or put(*a))
    monkeypatch.setattr(job, "transfer", noted)
    assert by_ranks(full, "memory://out", tmp_path, SPLIT) == ["", ""]
    assert written == [] and not set(first) & set(sent) and {".metadata", "conversion.json"} <= set(sent)
    assert run("verify-ckpt", "memory://out").exit_code == 0
    assert list(tmp_path.iterdir()) == []
    assert not any("fsdp-migrate" in path or ".work" in path for path in memory.find("memory://out"))


def by_one(source: Path | str, url: str, write: WriteOptions) -> str:
    """Convert a file or a URL by a process of its own; what it ended with."""
    try:
        with stand_ins() as places, open_source([places.local(str(source))]) as contents:
            target = places.target(url, ConvertOptions(write, jobs=2))
            with target.open() as chosen:
                convert(
                    contents,
                    target.path,
                    chosen,
                    reopen=lambda path: open_source([path]),
                    watch=SourceWatch([places.local(str(source))], also=places.check),
                )
    except CheckpointError as error:
        return f"{error.message} ({error.hint})"
    return ""


class Traffic:
    """What is sent to the memory store and which tensors are written, of a run after one that was killed."""

    def __init__(
        self, full: Path | str, memory: fsspec.AbstractFileSystem, patch: pytest.MonkeyPatch
    ) -> None:
        self.sent: list[str] = []
        self.written: list[int] = []
        put, transfer = type(memory).put_file, job.transfer

        def noted(system: object, source: str, target: str, **options: object) -> None:
            self.sent.append(target.rpartition("/")[2])
            put(system, source, target, **options)

        def listed(*arguments: Any) -> Any:
            self.written.extend(arguments[4])
            return transfer(*arguments)

        patch.setattr(type(memory), "put_file", noted)
        patch.setattr(job, "transfer", listed)
        patch.setattr(journal, "_FLUSH_BYTES", 1)
        with patch.context() as killed:
            killed.setattr(job, "check_output", lambda *_: 1 / 0)  # the last moment: most was sent
            killed.setattr(RemoteTarget, "give_up", lambda *_: None)
            with pytest.raises(ZeroDivisionError):
                by_one(full, "memory://out", SPLIT)
        self.first = sorted(set(self.sent))
        self.sent.clear()
        self.written.clear()


def test_a_run_that_was_killed_while_it_sent_is_gone_on_with(
    full: Path, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Traffic(full, memory, monkeypatch)
    data = [name for name in traffic.first if name.endswith(".distcp")]
    assert len(data) > 3
    assert by_one(full, "memory://out", SPLIT) == ""
    assert set(traffic.sent) == {".metadata", "conversion.json"}
    assert len(traffic.written) < len(WEIGHTS) // 3  # what the journal did not have when a file was sent
    assert not any("fsdp-migrate" in path for path in memory.find("memory://out"))
    assert run("verify-ckpt", "memory://out").exit_code == 0


def lost_while_sending(memory: fsspec.AbstractFileSystem, patch: pytest.MonkeyPatch) -> None:
    put = type(memory).put_file

    def lost(system: object, source: str, target: str, **options: object) -> None:
        if target.endswith((".metadata", "__0_5.distcp")):
            raise ConnectionError("lost")
        put(system, source, target, **options)

    patch.setattr(type(memory), "put_file", lost)


def lost_while_checking(memory: fsspec.AbstractFileSystem, patch: pytest.MonkeyPatch) -> None:
    get = type(memory).cat_file

    def lost(system: object, path: str, *places: object, **named: object) -> bytes:
        if path.endswith(".distcp"):
            raise ConnectionError("lost")
        data: bytes = get(system, path, *places, **named)
        return data

    patch.setattr(remote_source, "_WAIT_S", 0)
    patch.setattr(type(memory), "cat_file", lost)


def no_room(memory: fsspec.AbstractFileSystem, patch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    patch.setattr(job, "write_report", full)


def interrupted(memory: fsspec.AbstractFileSystem, patch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    patch.setattr(job, "check_output", stop)


@pytest.mark.parametrize("loss", [lost_while_sending, lost_while_checking, no_room, interrupted])
def test_what_arrived_before_a_loss_stays_and_is_gone_on_with(
    loss: Any, full: Path, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_FLUSH_BYTES", 1)
    with monkeypatch.context() as patch:
        loss(memory, patch)
        if loss is interrupted:
            with pytest.raises(KeyboardInterrupt):
                by_one(full, "memory://out", SPLIT)
        else:
            said = by_one(full, "memory://out", SPLIT)
            assert "memory://out stays there: run the same command again" in said
            assert "left behind" not in said
    arrived = {path.rpartition("/")[2] for path in memory.find("memory://out")}
    data = {name for name in arrived if name.endswith(".distcp")}
    assert len(data) > 3 and ".fsdp-migrate-partial" in arrived and ".metadata" not in arrived
    sent: list[str] = []
    put = type(memory).put_file

    def noted(system: object, source: str, target: str, **options: object) -> None:
        sent.append(target.rpartition("/")[2])
        put(system, source, target, **options)

    monkeypatch.setattr(type(memory), "put_file", noted)
    assert by_one(full, "memory://out", SPLIT) == ""
    assert not data & set(sent) and {".metadata", "conversion.json"} <= set(sent)
    assert not any("fsdp-migrate" in path for path in memory.find("memory://out"))
    assert run("verify-ckpt", "memory://out").exit_code == 0


def test_each_line_of_the_journals_is_sent_once(
    full: Path, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Traffic(full, memory, monkeypatch)
    notes = sorted(path for path in memory.find("memory://out") if NOTE_NAME in path)
    heads, rows = [], []
    for note in notes:
        head, *lines = memory.cat_file(note).splitlines()
        heads.append(json.loads(head)["sent"])
        rows += [json.loads(line)[0] for line in lines]
    assert sorted(heads) == [name for name in traffic.first if name.endswith(".distcp")]
    assert len(rows) == len(set(rows)) > len(WEIGHTS) // 2


def test_a_source_behind_a_url_is_known_again(
    full: Path, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe_file("memory://in/full.pt", full.read_bytes())
    traffic = Traffic("memory://in/full.pt", memory, monkeypatch)
    assert by_one("memory://in/full.pt", "memory://out", SPLIT) == ""
    assert set(traffic.sent) == {".metadata", "conversion.json"}
    assert run("verify-ckpt", "memory://out").exit_code == 0


@pytest.mark.parametrize("why", ["it changed", "the store says only its size"])
def test_a_source_behind_a_url_that_may_be_another_starts_anew(
    why: str, full: Path, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe_file("memory://in/full.pt", full.read_bytes())
    if why == "the store says only its size":
        monkeypatch.setattr(remote_source, "_STAMPS", ("size",))
    traffic = Traffic("memory://in/full.pt", memory, monkeypatch)
    if why == "it changed":
        memory.pipe_file("memory://in/full.pt", full.read_bytes())
    assert by_one("memory://in/full.pt", "memory://out", SPLIT) == ""
    assert set(traffic.first) <= set(traffic.sent) and len(traffic.written) == len(WEIGHTS)
    assert run("verify-ckpt", "memory://out").exit_code == 0


def other_source(full: Path, memory: fsspec.AbstractFileSystem) -> Path:
    copy = full.with_name("copy.pt")
    copy.write_bytes(full.read_bytes())
    return copy


def cut_short(full: Path, memory: fsspec.AbstractFileSystem) -> Path:
    memory.pipe_file("memory://out/__0_2.distcp", memory.cat_file("memory://out/__0_2.distcp")[:-1])
    return full


def damaged_record(full: Path, memory: fsspec.AbstractFileSystem) -> Path:
    memory.pipe_file(f"memory://out/{NOTE_NAME}000001", b'{"conversion": 3')
    return full


@pytest.mark.parametrize("change", [other_source, cut_short, damaged_record])
def test_anything_else_starts_anew(
    change: Any, full: Path, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Traffic(full, memory, monkeypatch)
    source = change(full, memory)
    assert by_one(source, "memory://out", SPLIT) == ""
    assert set(traffic.first) <= set(traffic.sent) and len(traffic.written) == len(WEIGHTS)
    assert run("verify-ckpt", "memory://out").exit_code == 0


def test_what_a_killed_run_sent_is_read_back(
    full: Path, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    Traffic(full, memory, monkeypatch)
    data = bytearray(memory.cat_file("memory://out/__0_2.distcp"))
    data[len(data) // 2] ^= 1
    memory.pipe_file("memory://out/__0_2.distcp", bytes(data))
    assert "CRC-32" in by_one(full, "memory://out", SPLIT)
    assert memory.find("memory://out") == []


def test_what_a_url_cannot_be_asked_for(
    full: Path, memory: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("convert-ckpt", full, tmp_path / "dcp").exit_code == 0
    done = run("convert-ckpt", tmp_path / "dcp", "memory://out", "--link")
    assert done.exit_code == 2 and "--link shares files within one file system" in done.output
    done = run("convert-ckpt", full, "memory://out", "--max-memory", "20MiB")
    assert done.exit_code == 2 and "--max-memory: this conversion takes about" in done.output
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = run("convert-ckpt", full, "memory://out")
    assert done.exit_code == 2 and "name one with --staging" in done.output


def test_bounded_memory_sends_in_pieces(
    full: Path, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    pieces = RemoteTarget._send_in_pieces

    def noted(self: RemoteTarget, path: Path, target: str) -> None:
        sent.append(target.rpartition("/")[2])
        pieces(self, path, target)

    monkeypatch.setattr(RemoteTarget, "_send_in_pieces", noted)
    assert run("convert-ckpt", full, f"{bucket}/bounded", "--max-memory", "4G").exit_code == 0
    assert set(sent) == {"__0_0.distcp", "__0_1.distcp", ".metadata", "conversion.json"}
    assert run("verify-ckpt", f"{bucket}/bounded").exit_code == 0


@pytest.mark.parametrize("url", ["memory://nothing/here.pt", "nonsense://x", "https://127.0.0.1:9/full.pt"])
def test_urls_that_lead_nowhere(url: str, tmp_path: Path, memory: object) -> None:
    done = run("convert-ckpt", url, tmp_path / "out")
    assert done.exit_code == 2
    assert f"fsdp-migrate: error: {url}: " in done.output
    assert not (tmp_path / "out").exists()


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves parts of files, as web servers do."""

    ranges = True
    asked: list[str]

    def send_head(self) -> object:  # type: ignore[override]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None or not self.ranges:
            return super().send_head()
        data = Path(self.translate_path(self.path)).read_bytes()
        piece = data[int(wanted[1]) : int(wanted[2]) + 1]
        self.asked.append(f"{wanted[1]}+{len(piece)}")
        self.send_response(206)
        self.send_header("Content-Length", str(len(piece)))
        self.send_header("Content-Range", f"bytes {wanted[1]}-{wanted[2]}/{len(data)}")
        self.end_headers()
        self.wfile.write(piece)
        return None

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path, *, ranges: bool) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (_Handler,), {"ranges": ranges, "asked": asked})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_web_server(full: Path, tmp_path: Path, ranges: bool) -> None:
    with serving(full.parent, ranges=ranges) as (url, asked):
        done = run("convert-ckpt", f"{url}/full.pt", tmp_path / "out")
        assert done.exit_code == 0, done.output
        assert_equal(loaded(tmp_path / "out"))
        if ranges:
            read = sum(int(piece.partition("+")[2]) for piece in asked)
            assert full.stat().st_size < read < full.stat().st_size + (4 << 20)
