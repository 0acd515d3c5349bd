"""A carrier and a hazard made into one program, and what the rules say of it, all in memory."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from hazards import HAZARDS, Hazard

from codemods.analysis.collect import link
from codemods.analysis.index import Index
from codemods.analysis.module import Module
from codemods.analysis.shelf import Shelf, imported_names
from codemods.model import Options
from codemods.outcomes import decide
from codemods.plan import find_all
from codemods.project import Project
from codemods.sources import decode, names_fsdp

_IMPORTS = """\
import asyncio, collections, contextlib, copy, dataclasses, functools, threading, types, typing
import torch
from torch import nn
from parts import Block, Engine, Net
"""
_FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
_DDP = "from torch.nn.parallel import DistributedDataParallel as DDP\n"
_PARTS = """\
from torch import nn
class Block(nn.Module):
    pass
class Net(nn.Module):
    pass
class Engine:
    module = process_group = None
    def __init__(self, net=None): pass
    def __call__(self, x): return x
    def state_dict(self): return {}
    def load_state_dict(self, state): pass
    def generate(self, x): return x
    def forward(self, x): return x
    def parameters(self): return []
    def named_parameters(self): return {}
    def modules(self): return []
    def clip_grad_norm_(self, c): return 1.0
    def no_sync(self): return self
    def summon_full_params(self, m): return self
    def apply(self, f): return self
    def to(self, device): return self
    def train(self): return self
    def requires_grad_(self, flag): return self
    def cuda(self): return self
"""

SHARDED = "FSDP(Net())"
MIRRORS = {"plain": "Net()", "DDP": "DDP(Net())", "unrelated": "Engine()"}


@dataclass(frozen=True, slots=True)
class Program:
    """Files, and the place of the hazard."""

    files: dict[str, str]
    path: str
    line: int


def program(carrier: dict[str, str], hazard: Hazard, made: str) -> Program | None:
    """The program; None where a hazard of several statements would stand within an expression."""
    files, place = {"parts.py": _PARTS}, None
    for path, text in carrier.items():
        text = textwrap.dedent(text).lstrip("\n")
        head = _IMPORTS + (_FSDP + _DDP if "MADE" in text else "")
        lines = [*head.splitlines(), *text.replace("MADE_AGAIN", made).replace("MADE", made).splitlines()]
        at = next((i for i, line in enumerate(lines) if line.lstrip().startswith(">>> ")), None)
        if at is not None:
            indent, subject = lines[at].split(">>> ")
            if is_in_expression(carrier) and not hazard.is_expression:
                return None
            used = textwrap.indent(hazard.text.format(m=subject), indent).splitlines()
            marked = next((i for i, line in enumerate(used) if line.endswith("# <-")), 0)
            lines[at : at + 1] = used
            place = path, at + 1 + marked
        files[path] = "\n".join(lines) + "\n"
    assert place is not None
    if made != SHARDED:  # a sharded model that has nothing to do with it
        files["main.py"] += ("" if _FSDP in files["main.py"] else _FSDP) + f"\nstranger = {SHARDED}\n"
    return Program(files, *place)


def is_in_expression(carrier: dict[str, str]) -> bool:
    """Whether the model arrives within an expression."""
    return any("[\n" in text.partition(">>>")[0][-40:] for text in carrier.values() if ">>>" in text)


def project_of(files: dict[str, str], *, on_demand: bool = False) -> Project:
    """Nothing is on a disk; everything is read, or only what names FSDP and where that leads."""
    loaded: dict[str, Module] = {}

    def load(path: str) -> Module | None:
        if path not in loaded:
            loaded[path] = Module(decode(path, files[path].encode()))
        return loaded[path]

    index = Index(list(files), load)
    if not on_demand:
        for path in files:
            load(path)
        return link(index, loaded, Options())
    codes = {path: text.encode() for path, text in files.items()}
    imports = {
        path: {found for name in imported_names(code) if (found := index.locate(name, path)) is not None}
        for path, code in codes.items()
    }
    shelf = Shelf(files, codes.__getitem__, load, imports, loaded)
    shelf.load(path for path, code in codes.items() if names_fsdp(code))
    project = link(index, loaded, Options(), shelf)
    project.imports, project.linked = imports, tuple(files)
    return project


def found_at(made: Program) -> dict[tuple[str, int], set[str]]:
    """Codes of everything reported, done or not, by place."""
    return _found(project_of(made.files))


def found_on_demand(made: Program) -> dict[tuple[str, int], set[str]]:
    """The same where files are read as they are needed."""
    return _found(project_of(made.files, on_demand=True))


def _found(project: Project) -> dict[tuple[str, int], set[str]]:
    reported = decide(project, find_all(project))
    found: dict[tuple[str, int], set[str]] = {}
    for item in reported:
        place = item.finding.place
        found.setdefault((place.path, place.line), set()).add(item.finding.code)
    return found


def ordered(text: str, wrapper: str) -> Program:
    """A program of one file with a wrapper in the place of `WRAP`, and the line that is marked."""
    text = _IMPORTS + _FSDP + _DDP + textwrap.dedent(text).replace("WRAP(", f"{wrapper}(")
    text += f"\nstranger = {SHARDED}\n"
    line = next(i for i, one in enumerate(text.splitlines(), start=1) if one.endswith("# <-"))
    return Program({"parts.py": _PARTS, "main.py": text}, "main.py", line)


def everything(*, in_expression: bool) -> Hazard:
    """All hazards one after the other, those that fit into an expression as one tuple."""
    texts = [h.text.replace("  # <-", "") for h in HAZARDS.values() if h.is_expression or not in_expression]
    return Hazard(f"({', '.join(texts)})" if in_expression else "\n".join(texts), frozenset())
