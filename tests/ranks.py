"""One process that has imported torch; tests fork the ranks of their jobs from it.

A fresh interpreter spends some four seconds of CPU time on torch and, at the first optimizer, on dynamo.
"""

from __future__ import annotations

import atexit
import sys
from functools import cache
from pathlib import Path

from fsdp_migrate.demo.ranks import PRELOAD, RankForker, RankJob

ROOT = Path(__file__).parents[1]
MORE = (
    "torch.distributed.checkpoint.format_utils",
    "torch.distributed.tensor",
)


@cache
def forker() -> RankForker:
    """The process, started when first asked for and ended with this one."""
    made = RankForker((*PRELOAD, *MORE))
    atexit.register(made.__exit__, None, None, None)
    return made


def run_module(
    module: str, world_size: int, log_dir: Path, *arguments: object, timeout_s: float = 150
) -> None:
    """Run `python -m module arguments` on every rank, from the root of this repository.

    Raises:
        JobError: a rank failed or was late; quotes the end of its output, the whole of which is in `log_dir`.
    """
    words = (module, *map(str, arguments))
    forker().run(RankJob(__file__, words, world_size, ROOT, log_dir, timeout_s))


if __name__ == "__main__":
    import runpy

    sys.path.insert(0, str(ROOT))
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
