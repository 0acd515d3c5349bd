"""A small project with a finding of every outcome, and the program run on it as a user would."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.program import run_program

ROOT = Path(__file__).parents[2]

TRAIN = '''\
"""Trains <b>models</b> & more."""
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model: torch.nn.Module, batches) -> None:
    model = FSDP(model, use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        model(batch).sum().backward()
        model.clip_grad_norm_(
            1.0,  # größer als üblich: 1 < 2
        )
        optimizer.step()
    print(model._handle)
    print(model.flat_param)  # fsdp-migrate: ignore[FM507] <i>only printed</i> | until May
    print(model._handles)  # fsdp-migrate: ignore[FM507]
'''
PLAIN = '''\
"""Has nothing to do with FSDP."""

VALUE = 1  # fsdp-migrate: ignore[FM301] copied from elsewhere
'''
BROKEN = "from torch.distributed.fsdp import FSDP\ndef broken(:\n"
FILES = {"pkg/train.py": TRAIN, "pkg/plain.py": PLAIN, "pkg/broken.py": BROKEN}


@dataclass(frozen=True, slots=True)
class Told:
    """What one run of the program left behind."""

    code: int
    out: str
    err: str


def program(*arguments: str, cwd: Path) -> Told:
    """Run `fsdp-migrate`."""
    done = run_program(*arguments, cwd=cwd, env={"PATH": "/usr/bin:/bin", "HOME": str(cwd)})
    return Told(done.returncode, done.stdout, done.stderr)


def write(folder: Path, files: dict[str, str]) -> Path:
    """Lay out a project."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
