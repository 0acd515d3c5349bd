"""Mutates checkpoints and reads each: a clear error or a result, soon, in little memory, and nothing is run.

    python benchmarks/fuzz_checkpoints.py [--files 200000] [--seed 0] [--jobs 1] [--seconds 10] [--gib 2]

Sources are small checkpoints of every format: torch.save files new and old, rank files, DCP directories,
safetensors, and what releases from 1.13 on wrote. A mutation hits the bytes of a file, or the pickle inside
an archive that is then sealed again, so that checksums do not hide it. The reader opens the result and reads
every tensor. A fault is any other error than a `CheckpointError`, more time or memory than allowed, or any
audited act (a process, an import of the file's choosing, a file written). Prints faults with the seed that
makes each again; exit status 1 where there are any.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from checkpoint_convert.errors import CheckpointError  # noqa: E402
from checkpoint_convert.model import numel  # noqa: E402
from checkpoint_convert.plain_values import walk  # noqa: E402
from checkpoint_convert.readers.open import ReadOptions, open_source  # noqa: E402
from checkpoint_convert.values import is_tensor  # noqa: E402

OLD = ROOT / "tests" / "checkpoint_convert" / "old_torch"
LONGEST = 200_000
"""Bytes of a source; longer ones take longer without being any different."""

READ_MOST = 1 << 20
"""Bytes read of a tensor."""

FORBIDDEN = (
    "os.system",
    "subprocess.Popen",
    "os.exec",
    "os.spawn",
    "os.posix_spawn",
    "os.fork",
    "socket.connect",
)

MAKE = """
import sys, torch, json
from torch import nn
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
target = sys.argv[1]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3).bfloat16())
optimizer = torch.optim.AdamW(model.parameters())
for p in model.parameters():
    p.grad = torch.ones_like(p)
optimizer.step()
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
         "rng": torch.get_rng_state()[:16], "names": ["a", ("b", {"c": 1.5})]}
torch.save(state, f"{target}/full.pt")
torch.save(state, f"{target}/legacy.pt", _use_new_zipfile_serialization=False)
save_file({k: v.contiguous() for k, v in model.state_dict().items()}, f"{target}/model.safetensors")
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
dcp.save({"model": model.state_dict(), "optim": get_optimizer_state_dict(model, optimizer), "step": 3},
         checkpoint_id=f"{target}/dcp", no_dist=True)
"""


@dataclass(slots=True)
class Tally:
    """What came of a stretch of seeds."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0
    peak_mib: int = 0


class TooSlow(BaseException):
    """One file took longer than it may."""


class Forbidden(BaseException):
    """Something was done that no file may make us do."""


def _alarm(number: int, frame: FrameType | None) -> None:
    raise TooSlow


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event.startswith(FORBIDDEN):
        raise Forbidden(f"{event}{arguments!r:.200}")


def sources(folder: Path) -> list[Path]:
    """Files and directories worth mutating."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", MAKE, str(folder)], check=True)
    found = [folder / "full.pt", folder / "legacy.pt", folder / "model.safetensors", folder / "dcp"]
    for job in sorted(path for path in OLD.iterdir() if path.is_dir() and "world" in path.name):
        found += [path for path in sorted(job.iterdir()) if path.is_dir() or path.suffix in (".pt", ".pth")]
    return [path for path in found if sum(map(_size, _files(path))) <= LONGEST]


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _size(path: Path) -> int:
    return path.stat().st_size


def mutated(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """A few random changes."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        chance.choice(MUTATIONS)(out, chance, other)
    return bytes(out)


def _flip(out: bytearray, chance: random.Random, other: bytes) -> None:
    if out:
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)


def _set(out: bytearray, chance: random.Random, other: bytes) -> None:
    if out:
        out[chance.randrange(len(out))] = chance.choice(
            (0, 1, 0x7F, 0x80, 0xFF, *b"(.0}]tReQcqhXKMJ\x80\x85\x93")
        )


def _number(out: bytearray, chance: random.Random, other: bytes) -> None:
    width = chance.choice((1, 2, 4, 8))
    at = chance.randrange(len(out) + 1)
    value = chance.choice((0, 1, -1, 127, 128, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, len(out)))
    out[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")


def _cut(out: bytearray, chance: random.Random, other: bytes) -> None:
    at = chance.randrange(len(out) + 1)
    del out[at : at + chance.choice((1, 2, 16, 256, len(out)))]


def _repeat(out: bytearray, chance: random.Random, other: bytes) -> None:
    at = chance.randrange(len(out) + 1)
    piece = bytes(out[at : at + chance.choice((1, 4, 32, 256))])
    out[at:at] = piece * chance.choice((1, 2, 100))


def _splice(out: bytearray, chance: random.Random, other: bytes) -> None:
    at, start = chance.randrange(len(out) + 1), chance.randrange(len(other) + 1)
    piece = other[start : start + chance.choice((2, 16, 200))]
    out[at : at + chance.choice((0, len(piece)))] = piece


def _move(out: bytearray, chance: random.Random, other: bytes) -> None:
    start, at = chance.randrange(len(out) + 1), chance.randrange(len(out) + 1)
    piece = bytes(out[start : start + chance.choice((1, 8, 64))])
    out[at:at] = piece


MUTATIONS: tuple[Callable[[bytearray, random.Random, bytes], None], ...] = (
    _flip, _set, _number, _cut, _repeat, _splice, _move,
)  # fmt: skip


def sealed(data: bytes, chance: random.Random, other: bytes) -> bytes | None:
    """An archive with a mutated record, its checksums made right again; None for what is no archive."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            records = [(name, archive.read(name)) for name in archive.namelist()]
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError):
        return None
    chosen = next((n for n, (name, _) in enumerate(records) if name.endswith("data.pkl")), 0)
    if chance.random() < 0.1:
        chosen = chance.randrange(len(records))
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for number, (name, content) in enumerate(records):
            archive.writestr(name, mutated(content, chance, other) if number == chosen else content)
    return out.getvalue()


def mutate(source: Path, target: Path, chance: random.Random, other: bytes) -> None:
    """Write a mutated copy of a source."""
    files = _files(source)
    victim = chance.choice(files)
    metadata = [file for file in files if file.name == ".metadata"]
    if metadata and chance.random() < 0.6:
        victim = metadata[0]
    for file in files:
        data = file.read_bytes()
        if file == victim:
            resealed = sealed(data, chance, other) if chance.random() < 0.6 else None
            data = mutated(data, chance, other) if resealed is None else resealed
        place = target / file.relative_to(source) if source.is_dir() else target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def read_all(path: Path) -> str:
    """Open a checkpoint and read its tensors; in one word, what came of it."""
    try:
        with open_source([path], ReadOptions()) as contents:
            things = [contents.model, contents.extras]
            if contents.optimizer is not None:
                things.append(contents.optimizer.state)
            for thing in things:
                for _, value in walk(dict(thing)):
                    if is_tensor(value):
                        count = min(numel(value.shape), READ_MOST // value.dtype.itemsize)
                        for _block in value.blocks(0, count):
                            pass
            contents.finish()
    except CheckpointError as error:
        if not error.message:
            raise AssertionError("an error without a message") from error
        return type(error).__name__
    return "read"


def stretch(seeds: range, *, paths: list[Path], seconds: int, gib: float) -> Tally:
    """Work through seeds, in a process of its own."""
    tally = Tally()
    signal.signal(signal.SIGALRM, _alarm)
    limit = int(gib * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    contents = [b"".join(file.read_bytes() for file in _files(path)) for path in paths]
    _warm_up(paths)
    sys.addaudithook(_audit)
    for seed in seeds:
        chance = random.Random(seed)
        source = chance.choice(paths)
        target = folder / source.name
        mutate(source, target, chance, chance.choice(contents))
        started = time.perf_counter()
        signal.alarm(seconds)
        try:
            tally.counts[read_all(target)] += 1
        except (Exception, TooSlow, Forbidden) as error:
            signal.alarm(0)
            tally.counts["FAULT"] += 1
            last = traceback.extract_tb(error.__traceback__)[-1]
            tally.faults.append(
                f"seed {seed} ({source.name}): {error!r:.300} at {last.filename}:{last.lineno}"
            )
        finally:
            signal.alarm(0)
        tally.slowest = max(tally.slowest, time.perf_counter() - started)
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()
    shutil.rmtree(folder)
    tally.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return tally


def _warm_up(paths: list[Path]) -> None:
    """Import all that readers import late, before the watch begins."""
    for path in paths:
        read_all(path)


def main() -> int:
    """Mutate, read, count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=10, help="allowed per file")
    parser.add_argument("--gib", type=float, default=2.0, help="address space allowed")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    total = Tally()
    started = time.monotonic()
    try:
        paths = sources(folder)
        print(f"{len(paths)} sources", flush=True)
        work = partial(stretch, paths=paths, seconds=options.seconds, gib=options.gib)
        last = options.seed + options.files
        parts = [range(at, min(at + 5000, last)) for at in range(options.seed, last, 5000)]
        with ProcessPoolExecutor(options.jobs) as pool:
            for part, tally in zip(parts, pool.map(work, parts), strict=True):
                total.counts += tally.counts
                total.faults += tally.faults
                total.slowest = max(total.slowest, tally.slowest)
                total.peak_mib = max(total.peak_mib, tally.peak_mib)
                print(f"{part.stop - options.seed:,} files, {len(total.faults)} faults", flush=True)
                for fault in tally.faults:
                    print(f"  {fault}", flush=True)
    finally:
        shutil.rmtree(folder)
    print(f"{sum(total.counts.values()):,} files in {time.monotonic() - started:.0f} s: {dict(total.counts)}")
    print(f"slowest {total.slowest:.2f} s, peak {total.peak_mib} MiB")
    return 1 if total.faults else 0


if __name__ == "__main__":
    sys.exit(main())
