"""Several ranks convert together: the same bytes, one commit, and a lost rank costs only its own part."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from checkpoint_convert import journal, laid_out, ranks
from checkpoint_convert.convert import ConvertOptions, SourceWatch, convert, make_plan
from checkpoint_convert.errors import CheckpointError, UnreadableError
from checkpoint_convert.job import Job
from checkpoint_convert.model import Contents, DType, SourceFormat
from checkpoint_convert.parallel import Workers
from checkpoint_convert.progress import Silent
from checkpoint_convert.ranks import Ranks
from checkpoint_convert.readers.open import ReadOptions, open_source
from checkpoint_convert.write_options import OutputFormat, Preset, WriteOptions

ROOT = Path(__file__).parents[2]


class Counted:
    """A tensor that counts how often its bytes were asked for, and may fail."""

    dtype = DType.FLOAT32
    shape = (250,)

    def __init__(self, value: int) -> None:
        self.value, self.reads, self.broken = value, 0, False

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        self.reads += 1
        if self.broken:
            raise UnreadableError("a disk failed", hint="none")
        yield memoryview(bytes([self.value]) * (4 * (stop - start)))


@pytest.fixture
def model() -> dict[str, Counted]:
    return {f"layer{number:02}": Counted(number) for number in range(12)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_text("as it was")
    return path


def start(
    model: dict[str, Counted], source: Path, target: Path, size: int, write: WriteOptions, **options: bool
) -> list[CheckpointError | None]:
    """Convert with that many ranks, each a thread; how each ended."""
    ended: list[CheckpointError | None] = [None] * size

    def one(rank: int) -> None:
        asked = ConvertOptions(write, ranks=Ranks(rank, size), **options)  # type: ignore[arg-type]
        contents = Contents(SourceFormat.FULL, model, extras={"epoch": 3})
        try:
            convert(
                contents,
                target,
                asked,
                reopen=lambda path: open_source([path], ReadOptions(model_key=write.model_key)),
                watch=SourceWatch([source]),
            )
        except CheckpointError as error:
            ended[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return ended


def files(folder: Path) -> dict[str, bytes]:
    """All bytes below a folder, or of a file and its report."""
    if folder.is_file():
        report = folder.with_name(f".{folder.name}.conversion.json")
        beside = folder.with_name(f"{folder.name}.conversion.json")
        return {"": folder.read_bytes(), "report": (report if report.exists() else beside).read_bytes()}
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


FORMS = [
    WriteOptions(file_bytes=3000),
    WriteOptions(shards=3),
    WriteOptions(preset=Preset.LIGHTNING, model_key="state_dict", optim_key="optimizer_0"),
    WriteOptions(to=OutputFormat.TORCH),
    WriteOptions(to=OutputFormat.SAFETENSORS, file_bytes=3000),
]


@pytest.mark.parametrize("many", [laid_out.MANY_CHUNKS, 3], ids=["read as any", "read where laid out"])
@pytest.mark.parametrize("write", FORMS, ids=["files", "shards", "lightning", "torch", "safetensors"])
def test_three_ranks_write_what_one_does(
    model: dict[str, Counted],
    source: Path,
    tmp_path: Path,
    write: WriteOptions,
    many: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(laid_out, "MANY_CHUNKS", many)
    assert start(model, source, tmp_path / "one", 1, write) == [None]
    (reads,) = {tensor.reads for tensor in model.values()}
    assert start(model, source, tmp_path / "three", 3, write) == [None, None, None]
    assert {tensor.reads for tensor in model.values()} == {2 * reads}
    assert files(tmp_path / "three") == files(tmp_path / "one")
    assert not (tmp_path / "three.partial").exists()


@pytest.mark.parametrize("write", FORMS, ids=["files", "shards", "lightning", "torch", "safetensors"])
@pytest.mark.parametrize("silent", [False, True], ids=["says so", "is silent"])
def test_a_lost_rank_leaves_no_output_and_the_next_run_goes_on(
    model: dict[str, Counted],
    source: Path,
    tmp_path: Path,
    write: WriteOptions,
    silent: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(laid_out, "MANY_CHUNKS", 3 if silent else 100)  # in both ways
    target = tmp_path / "out"
    model["layer06"].broken = True
    with monkeypatch.context() as patch:
        if silent:  # killed, for all the others know
            patch.setattr(ranks, "LOST_S", 0.3)
            patch.setattr(Ranks, "fail", lambda self, reason: None)
        ended = start(model, source, target, 3, write)
    assert [error is not None for error in ended] == [True, True, True]
    assert ended[1] is not None and ended[1].message == "a disk failed"
    said = "rank 1 is lost after 0 s" if silent else "rank 1: a disk failed"
    assert ended[0] is not None and ended[0].message == said
    assert "run the same command again" in ended[0].hint
    assert not target.exists()
    assert (tmp_path / "out.partial" / ".fsdp-migrate-partial").exists()
    finished = {name for name, tensor in model.items() if tensor.reads and not tensor.broken}
    assert len(finished) >= 9

    model["layer06"].broken = False
    reads = {name: tensor.reads for name, tensor in model.items()}
    assert start(model, source, target, 2, write) == [None, None]
    again = {name for name, tensor in model.items() if tensor.reads > reads[name]}
    assert again == model.keys() - finished
    assert start(model, source, tmp_path / "clean", 1, write) == [None]
    assert files(target) == files(tmp_path / "clean")
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("change", ["source", "options", "layout"])
def test_another_conversion_starts_anew(
    model: dict[str, Counted], source: Path, tmp_path: Path, change: str
) -> None:
    model["layer06"].broken = True
    start(model, source, tmp_path / "out", 2, WriteOptions())
    model["layer06"].broken = False
    write = WriteOptions()
    if change == "source":
        source.write_text("changed since")
    elif change == "options":
        write = WriteOptions(chunk_bytes=100)
    else:
        del model["layer11"]
    reads = {name: tensor.reads for name, tensor in model.items()}
    assert start(model, source, tmp_path / "out", 1, write) == [None]
    assert all(tensor.reads > reads[name] for name, tensor in model.items())


@pytest.mark.parametrize("verify", [True, False])
def test_what_an_earlier_run_wrote_is_read_back_in_any_case(
    model: dict[str, Counted], source: Path, tmp_path: Path, verify: bool
) -> None:
    model["layer06"].broken = True
    start(model, source, tmp_path / "out", 2, WriteOptions())
    model["layer06"].broken = False
    file = tmp_path / "out.partial" / "__0_1.distcp"
    data = file.read_bytes()
    at = data.index(b"\1" * 1000)
    file.write_bytes(data[:at] + b"\7" + data[at + 1 :])
    (error,) = start(model, source, tmp_path / "out", 1, WriteOptions(), verify=verify)
    assert (error is not None and "failed its check after writing" in error.message) or "CRC-32" in str(error)
    assert not (tmp_path / "out").exists()
    assert start(model, source, tmp_path / "out", 1, WriteOptions()) == [None]


def test_links_are_made_by_one(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3)}, tmp_path / "full.pt")
    with open_source([tmp_path / "full.pt"]) as contents:
        convert(contents, tmp_path / "dcp", ConvertOptions(), reopen=lambda path: open_source([path]))
    for rank in (1, 0):
        options = ConvertOptions(WriteOptions(link=True), ranks=Ranks(rank, 2))
        with open_source([tmp_path / "dcp"]) as contents:
            convert(contents, tmp_path / "out", options, reopen=lambda path: open_source([path]))
        assert (tmp_path / "out").exists() == (rank == 0)


def test_a_full_disk_is_said_to_all(
    model: dict[str, Counted], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blocks(self: Counted, start: int, stop: int) -> Iterator[memoryview]:
        if self.value == 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        yield memoryview(bytes(4 * (stop - start)))

    monkeypatch.setattr(Counted, "blocks", blocks)
    ended = start(model, source, tmp_path / "out", 3, WriteOptions())
    said = f"no space left while writing {tmp_path / 'out'} (No space left on device)"
    assert [error and error.message for error in ended] == [f"rank 1: {said}", said, f"rank 1: {said}"]
    assert ended[1] is not None and ended[1].hint.startswith("what is finished is kept for the next run")


def together(folder: Path, outlines: tuple[str, ...]) -> tuple[list[Ranks], list[str]]:
    """Ranks that met in a folder, and what went wrong."""
    met = [Ranks(rank, len(outlines)) for rank in range(len(outlines))]
    wrong: list[str] = []

    def one(rank: Ranks, outline: str) -> None:
        try:
            (rank.invite if rank.is_first else rank.join)(folder, outline)
        except CheckpointError as error:
            wrong.append(error.message)
            rank.fail(error.message)

    threads = [threading.Thread(target=one, args=pair) for pair in zip(met, outlines, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return met, wrong


def test_a_rank_of_a_lost_run_is_not_taken_for_one_of_this(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, left), wrong = together(tmp_path, ("plan", "plan"))
    (first, second), wrong_again = together(tmp_path, ("plan", "plan"))
    assert wrong == wrong_again == []
    monkeypatch.setattr(ranks, "LOST_S", 0.3)
    with pytest.raises(CheckpointError, match="rank 0 is lost"):
        left.meet("written")
    left.fail("of no interest")
    with pytest.raises(CheckpointError, match="rank 1 is lost"):
        first.meet("written")
    for rank in (left, first, second):
        rank.leave()


def test_ranks_that_plan_different_outputs_do_not_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "COME_S", 1.0)
    met, wrong = together(tmp_path, ("plan", "plan", "another"))
    assert wrong[0] == "rank 2 plans another output than rank 0"
    assert wrong[1:] == ["rank 0: rank 2 plans another output than rank 0"] * 2
    for rank in met:
        rank.leave()


PLANS = [WriteOptions(chunk_bytes=100), WriteOptions(shards=3), WriteOptions(model_key="x")]


@pytest.mark.parametrize("write", PLANS)
def test_what_a_plan_is(model: dict[str, Counted], tmp_path: Path, write: WriteOptions) -> None:
    contents = Contents(SourceFormat.FULL, model)
    one, same, other = (
        journal.outline(make_plan(contents, tmp_path, ConvertOptions(options)).layout)
        for options in (WriteOptions(), WriteOptions(), write)
    )
    assert one == same != other


def test_a_plan_is_outlined_once(
    model: dict[str, Counted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(Contents(SourceFormat.FULL, model), tmp_path, ConvertOptions())
    watch = SourceWatch([])
    job = Job(plan, ConvertOptions(), Workers(1), Silent(), watch, open_source)
    outlines: list[str] = []
    outline = journal.outline
    monkeypatch.setattr(journal, "outline", lambda layout: outlines.append(outline(layout)) or outlines[-1])
    assert (
        job.fingerprint()
        == job.fingerprint()
        == journal.fingerprint(plan.layout, job.outline, watch.identity)
    )
    assert outlines == [job.outline]


def test_torchrun_is_noticed() -> None:
    assert (Ranks.of_environment({"RANK": "2", "WORLD_SIZE": "4"}).rank) == 2
    assert Ranks.of_environment({}).is_alone
    assert Ranks.of_environment({"RANK": "x", "WORLD_SIZE": "4"}).is_alone
    assert Ranks.of_environment({"RANK": "0", "WORLD_SIZE": "1"}).is_alone


def test_shares_are_even_runs() -> None:
    sizes = dict(enumerate([5, 1, 1, 1, 5, 1, 1, 1, 0, 0, 16]))
    cuts = journal.shares(sorted(sizes), sizes.__getitem__, 4)
    assert [number for cut in cuts for number in cut] == list(range(11))
    assert [sum(sizes[number] for number in cut) for cut in cuts] == [7, 8, 1, 16]
    assert journal.shares([3], lambda _: 0, 2) == [(), (3,)]
    assert journal.shares([], lambda _: 0, 2) == [(), ()]


def test_two_machines_share_a_file_system(tmp_path: Path) -> None:
    """Two agents of torchrun with names, process groups and temporary folders of their own."""
    weights = {f"w{number}": torch.randn(50, 60) for number in range(9)}
    torch.save(weights, tmp_path / "full.pt")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    agents = []
    for node in range(2):
        (tmp_path / f"own-{node}").mkdir()
        own = {"HOSTNAME": f"node-{node}", "TMPDIR": str(tmp_path / f"own-{node}")}
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node)]
        command += ["--master-addr", "127.0.0.1", "--master-port", str(port), "--local-addr", "127.0.0.1"]
        command += ["--nproc-per-node", "2", "-m", "fsdp_migrate", "convert-ckpt", str(tmp_path / "full.pt")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **own}
        agent = subprocess.Popen(
            [*command, str(tmp_path / "out"), "--jobs", "1"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        agents.append(agent)
    try:
        said = [agent.communicate(timeout=120) for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    assert [agent.returncode for agent in agents] == [0, 0], said
    assert ["read back and equal" in out for out, _ in said] == [True, False]
    assert not (tmp_path / "out.partial").exists()
    with open_source([tmp_path / "full.pt"]) as contents:
        convert(contents, tmp_path / "alone", ConvertOptions(), reopen=lambda path: open_source([path]))
    assert files(tmp_path / "out") == files(tmp_path / "alone")


def test_the_command_under_torchrun(tmp_path: Path) -> None:
    weights = {f"w{number}": torch.randn(50, 60) for number in range(9)}
    torch.save(weights, tmp_path / "full.pt")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "-m", "fsdp_migrate"]
    command += ["convert-ckpt", str(tmp_path / "full.pt"), str(tmp_path / "out"), "--jobs", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("read back and equal") == 1
    with open_source([tmp_path / "out"]) as contents:
        assert contents.model.keys() == weights.keys()
        for name, weight in weights.items():
            data = b"".join(map(bytes, contents.model[name].blocks(0, 3000)))
            assert data == weight.numpy().tobytes()
    assert replace(contents).format is SourceFormat.DCP
