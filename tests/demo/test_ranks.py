"""Forked ranks see what torchrun gives, and a rank that fails is named and leaves no other behind."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsdp_migrate.demo.ranks import RankForker, RankJob
from fsdp_migrate.errors import JobError

SHOW = """
import json, os, sys
from pathlib import Path
import neighbour
names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
seen = {name: os.environ[name] for name in names}
seen |= {"argv": sys.argv, "cwd": os.getcwd(), "name": __name__}
seen |= {"neighbour": neighbour.WORD, "path": sys.path[0]}
Path(f"seen{os.environ['RANK']}.json").write_text(json.dumps(seen))
"""
MISBEHAVE = """
import os, sys, time
from pathlib import Path
Path(f"pid{os.environ['RANK']}").write_text(str(os.getpid()))
if os.environ["RANK"] == "1":
    while not Path("pid0").exists(): time.sleep(0.01)
    ACT
time.sleep(60)
"""


@pytest.fixture(scope="module")
def ranks() -> Iterator[RankForker]:
    with RankForker(preload=("json",)) as forker:
        yield forker


def job(tmp_path: Path, program: str, timeout_s: float = 30.0) -> RankJob:
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "neighbour.py").write_text("WORD = 'beside the script'\n")
    return RankJob("program.py", ("--steps", "3"), 2, tmp_path, tmp_path / "logs", timeout_s)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_ranks_see_what_torchrun_gives(ranks: RankForker, tmp_path: Path) -> None:
    ranks.run(job(tmp_path, SHOW))
    seen = [json.loads((tmp_path / f"seen{rank}.json").read_text()) for rank in (0, 1)]
    assert [one["RANK"] for one in seen] == [one["LOCAL_RANK"] for one in seen] == ["0", "1"]
    for one in seen:
        assert one["WORLD_SIZE"] == one["LOCAL_WORLD_SIZE"] == "2"
        assert one["argv"] == ["program.py", "--steps", "3"]
        assert one["cwd"] == one["path"] == str(tmp_path)
        assert one["name"] == "__main__"
        assert one["neighbour"] == "beside the script"
    assert seen[0]["MASTER_PORT"] == seen[1]["MASTER_PORT"]


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("raise ValueError('no such shard')", "ValueError: no such shard"),
        ("print('bad flag', file=sys.stderr); sys.exit(2)", "bad flag"),
        ("print('last words', flush=True); os.abort()", "last words"),
        ("print('last words', flush=True); os.kill(os.getpid(), 9)", "last words"),
    ],
    ids=["exception", "exit code", "abort", "killed"],
)
def test_first_rank_that_fails_is_named_and_the_others_end(
    ranks: RankForker, tmp_path: Path, act: str, said: str
) -> None:
    start = time.monotonic()
    with pytest.raises(JobError, match=f"rank 1 of 2 .*{said}") as raised:
        ranks.run(job(tmp_path, MISBEHAVE.replace("ACT", act)))
    assert time.monotonic() - start < 20
    assert str(tmp_path / "logs" / "rank1.log") in raised.value.hint
    assert not is_alive(int((tmp_path / "pid0").read_text()))


def test_job_that_hangs_is_ended(ranks: RankForker, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"rank 0 of 2 .* did not end within 1 s"):
        ranks.run(job(tmp_path, MISBEHAVE.replace("ACT", "pass"), timeout_s=1.0))
    assert not any(is_alive(int((tmp_path / f"pid{rank}").read_text())) for rank in (0, 1))


def test_leaving_the_forker_ends_it(tmp_path: Path) -> None:
    with RankForker(preload=("json",)) as forker:
        forker.run(job(tmp_path, "import os; open('server', 'w').write(str(os.getppid()))"))
    assert not is_alive(int((tmp_path / "server").read_text()))
    with pytest.raises(JobError, match="has died"):
        forker.run(job(tmp_path, SHOW))


def test_forker_that_cannot_import_says_so(tmp_path: Path) -> None:
    with (
        RankForker(preload=("no_such_module",)) as forker,
        pytest.raises(JobError, match="has died"),
    ):
        forker.run(job(tmp_path, SHOW))
