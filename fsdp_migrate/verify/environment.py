"""The variables of ranks, as torchrun sets them, and of the process that starts them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

PACKAGES = Path(__file__).resolve().parent.parent.parent
"""Where this package is imported from."""


def free_port() -> int:
    """A TCP port nothing listens on at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def rank_environment(rank: int, nproc: int, port: int) -> dict[str, str]:
    """What torchrun tells rank `rank` of `nproc` on one machine."""
    shared = {
        "WORLD_SIZE": nproc,
        "LOCAL_WORLD_SIZE": nproc,
        "GROUP_WORLD_SIZE": 1,
        "ROLE_WORLD_SIZE": nproc,
        "GROUP_RANK": 0,
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "fsdp-migrate",
    }
    return {
        key: str(value)
        for key, value in {**shared, "RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank}.items()
    }


def rank_server_environment(nproc: int) -> dict[str, str]:
    """The environment of whatever starts ranks on this machine."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    known = environment.get("PYTHONPATH", "")
    if str(PACKAGES) not in known.split(os.pathsep):
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [known, str(PACKAGES)]))
    # As torchrun does; set before torch is imported because libgomp reads it then.
    if nproc > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")
    return environment
