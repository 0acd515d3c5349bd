"""Training programs put together at random from `program_parts`: one way for each thing that trainers do."""

from __future__ import annotations

import random
import re
import textwrap
from dataclasses import dataclass

import program_parts as parts
from program_saving import LOAD, SAVE, SAVES_OPTIMIZER
from program_shapes import NAMES, saving, shaped

SETTINGS = ("inline", "dict", "update", "partial", "fields", "positional")
CHOICES: dict[str, tuple[str, ...]] = {
    "imports": ("names", "module", "long"),
    "shape": (
        "function",
        "class",
        "files",
        "closures",
        "heir",
        "split",
        "global",
        "object",
        "dict",
        "fields",
        "mixin",
        "callback",
        "table",
    ),
    "config": ("", *parts.CONFIG),
    "settings": SETTINGS,
    "policy": tuple(parts.POLICY),
    "strategy": tuple(parts.STRATEGY),
    "precision": ("", *parts.PRECISION),
    "orig": ("True", "True", "False"),
    "extra": tuple(parts.EXTRA),
    "checkpointing": ("", "", "wrapper", "function"),
    "tied": ("", "", "tied"),
    "frozen": ("", "", "", *parts.FROZEN),
    "optimizer": tuple(parts.OPTIMIZER),
    "accumulate": ("", *parts.ACCUMULATE),
    "clip": tuple(parts.CLIP),
    "zero": tuple(parts.ZERO),
    "schedule": tuple(parts.SCHEDULE),
    "rival": ("", "", *parts.RIVAL),
    "average": ("", *parts.AVERAGE),
    "evaluate": ("", *parts.EVALUATE),
    "save": tuple(SAVE),
    "load": ("", "load", "anew"),
    "looks": tuple(parts.LOOKS),
}
_WRAP = "torch.distributed.fsdp.wrap"
_HOMES = {
    **dict.fromkeys(("ModuleWrapPolicy", "_or_policy", "transformer_auto_wrap_policy"), _WRAP),
    **dict.fromkeys(("lambda_auto_wrap_policy", "size_based_auto_wrap_policy"), _WRAP),
    "apply_activation_checkpointing": "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
}
_LONG = "torch.distributed.fsdp.fully_sharded_data_parallel"
_HEAD = """\
import argparse
import contextlib
import dataclasses
import functools
import types

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
"""
_SETTING = re.compile(r"""config\[['"](\w+)['"]\]""")


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    Attributes:
        chosen: thing -> the way in which it is done.
    """

    chosen: dict[str, str]

    @property
    def rtol(self) -> float:
        """Norms and sums of several passes are added up in another order, in low precision coarsely."""
        if not self.chosen["clip"] and self.chosen["accumulate"] in ("", "forward"):
            return 0.0
        return 0.2 if self.chosen["precision"] else 1e-5

    def files(self) -> dict[str, str]:
        """Name -> text."""
        head = f"{_HEAD}{{imports}}\n\nfrom model import Block, Net, batch, loss_of\n"
        c = self.chosen
        wrap, body = _shard(c), shaped(c, _built(c), _steps(c), _ended(c))
        config = parts.CONFIG[c["config"]]
        if c["shape"] == "files":
            body = f"from wrap import shard\n\n{config}\n\n{body}"
            texts = {"wrap.py": f"{head}\n{wrap}\n", "train.py": f"{head}{body}\n"}
        elif c["shape"] == "split":
            kept = "\n".join(saving(c))
            body = f"from saving import save\n\n{config}\n\n{wrap}\n\n{body}"
            texts = {"saving.py": f"{head}\n{kept}\n", "train.py": f"{head}{body}\n"}
        else:
            texts = {"train.py": f"{head}\n{config}\n\n{wrap}\n\n{body}\n"}
        return {"model.py": parts.MODEL} | {n: _spelled(c, text) for n, text in texts.items()}


def programs(count: int, seed: int) -> list[Program]:
    """Programs that are drawn at random, without those that FSDP1 itself cannot run."""
    drawn = random.Random(seed)
    found: list[Program] = []
    while len(found) < count:
        chosen = {thing: drawn.choice(ways) for thing, ways in CHOICES.items()}
        if _is_possible(chosen):
            found.append(Program(chosen))
    return found


def _is_possible(c: dict[str, str]) -> bool:
    """Whether a program runs under FSDP1, and what differs under FSDP2 is not told by a note already."""
    return not (
        (c["load"] == "anew" and c["optimizer"] not in ("adamw", "early", "trainable"))
        or (c["load"] == "anew" and (c["frozen"] or c["save"] == "old dcp"))
        or (c["orig"] == "False" and (c["optimizer"] not in ("adamw", "sgd", "trainable") or c["frozen"]))
        or (c["tied"] and c["policy"] == "size")
        or (c["load"] and c["save"] not in LOAD)
        or (c["clip"] == "torch" and c["strategy"] != "none")
        or (c["policy"] == "by hand" and c["settings"] in ("partial", "positional", "fields"))
        # FSDP1 raises for these (torch 2.13).
        or (c["strategy"] == "none" and c["precision"] and (c["tied"] or c["frozen"]))
        or (c["strategy"] == "none" and c["save"] == "summon state")
        # On a CPU one buffer is given for several states of original parameters (torch 2.13).
        or (c["orig"] == "True" and c["save"] in ("shard", "scatter"))
        # A rank without gradients gives the largest norm of all steps so far (`_zero_scalar`, torch 2.13).
        or (c["clip"] == "inf" and c["frozen"])
        or (c["extra"] == "ignored" and c["precision"])
        # Gradients of ignored parameters are each rank's own, so that ranks clip by different norms; their
        # optimizer says `foreach=False` (FM528).
        or (c["extra"] == "ignored" and (c["clip"] or c["save"] in SAVES_OPTIMIZER))
        or (c["precision"] == "buffers" and c["save"])  # saved in `buffer_dtype` (FM112)
    )


def _given(c: dict[str, str]) -> dict[str, str]:
    """The keywords of the wrap."""
    given = {
        "auto_wrap_policy": parts.POLICY[c["policy"]],
        "sharding_strategy": parts.STRATEGY[c["strategy"]],
        "mixed_precision": parts.PRECISION[c["precision"]],
        "use_orig_params": c["orig"],
        "device_id": 'torch.device("cpu")',
    }
    name, _, value = parts.EXTRA[c["extra"]].partition("=")
    return {n: v for n, v in (*given.items(), (name, value)) if v}


def _shard(c: dict[str, str]) -> str:
    """`shard(net, config)`, which wraps the model."""
    given, lines = _given(c), ["def shard(net, config):"]
    spelled = ", ".join(f"{name}={value}" for name, value in given.items())
    made = "@FullyShardedDataParallel"
    match c["settings"]:
        case "dict":
            lines.append(f"    settings = dict({spelled})")
            spelled = "**settings"
        case "update":
            lines.append("    settings = {" + ", ".join(f'"{n}": {v}' for n, v in given.items()) + "}")
            lines += ['    if config["prefetch"]:', '        settings["forward_prefetch"] = True']
            spelled = "**settings"
        case "fields":
            lines += ["    @dataclasses.dataclass", "    class Settings:"]
            field = "object = dataclasses.field(default_factory=lambda:"
            lines += [f"        {name}: {field} {value})" for name, value in given.items()]
            lines.append("    settings = Settings()")
            spelled = ", ".join(f"{name}=settings.{name}" for name in given)
        case "positional":
            spelled = f"None, {spelled}"
        case "partial":
            lines.append(f"    wrapper = functools.partial(@FullyShardedDataParallel, {spelled})")
            made, spelled = "wrapper", ""
    if c["policy"] == "by hand":
        inner = spelled.replace(", ignored_modules=[net.extra]", "")
        lines += [
            "    for i, block in enumerate(net.blocks):",
            f"        net.blocks[i] = {made}(block, {inner})",
        ]
    return "\n".join([*lines, f"    return {made}(net, {spelled})"])


def _built(c: dict[str, str]) -> str:
    optimizer = parts.OPTIMIZER[c["optimizer"]]
    early = c["optimizer"].startswith("early")
    lines = ["torch.manual_seed(3)", f"net = Net(tied=TIED, recompute={c['checkpointing'] == 'function'})"]
    if c["frozen"]:
        lines.append(parts.FROZEN[c["frozen"]])
    if early:
        lines.append(_word(optimizer, "P", "net"))
    lines.append("M = shard(net, config)")
    if c["checkpointing"] == "wrapper":
        lines.append("@apply_activation_checkpointing(M, check_fn=lambda m: isinstance(m, Block))")
    return "\n".join(lines if early else [*lines, _word(optimizer, "P", "M")])


def _steps(c: dict[str, str]) -> str:
    passes = 1 if c["accumulate"] in ("", "forward") else 2
    micro = [f"ids, targets = batch({passes} * step + micro, rank)", parts.ACCUMULATE[c["accumulate"]]]
    step = [
        f"for micro in range({passes}):",
        textwrap.indent("\n".join(micro), "    "),
        parts.CLIP[c["clip"]],
        "O.step()",
        parts.ZERO[c["zero"]],
        "scheduler.step()" if c["schedule"] else "",
        "losses.append(loss.item())",
        parts.RIVAL[c["rival"]],
        parts.AVERAGE[c["average"]],
        parts.EVALUATE[c["evaluate"]],
    ]
    before = ["losses, seen = [], []", parts.SCHEDULE[c["schedule"]], parts.RIVAL_BEFORE[c["rival"]]]
    before += [parts.AVERAGE_BEFORE[c["average"]], "for step in range(3):"]
    lines = [*filter(None, before), textwrap.indent("\n".join(filter(None, step)), "    ")]
    if c["average"] == "copy":
        lines += ["with torch.no_grad():", "    losses.append(loss_of(other(ids), targets).item())"]
    return "\n".join(lines)


def _ended(c: dict[str, str]) -> str:
    """What comes after the steps and the saving."""
    lines = []
    if c["load"]:
        on = "ids, targets = batch(70, rank)\nloss_of(M(ids), targets).backward()\nO.step()\nO.zero_grad()"
        lines += [on, LOAD[c["save"]], on, "losses.append(loss_of(M(ids), targets).item())"]
        if c["load"] == "anew":
            lines = [_word(_word("\n".join(lines), "M", "again"), "O", "restarted")]
            lines.insert(0, "restarted = torch.optim.AdamW(again.parameters(), lr=0.01, eps=1e-3)")
            lines.insert(0, "torch.manual_seed(4)\nagain = shard(Net(tied=TIED), CONFIG)")
    lines.append(parts.LOOKS[c["looks"]])
    if c["frozen"]:  # FSDP1 can show zeros where FSDP2 has no gradient
        lines.append("M.zero_grad()")
    return "\n".join(filter(None, (*lines, "return {'losses': losses, 'seen': seen, 'model': M}")))


def _spelled(c: dict[str, str], text: str) -> str:
    """A file with its names and imports."""
    words = sorted(set(re.findall(r"@(\w+)", text)) - {"dataclasses"})
    lines = []
    for word in words:
        home = _HOMES.get(word, "torch.distributed.fsdp")
        if c["imports"] == "module" and word not in _HOMES:
            text = text.replace(f"@{word}", f"fsdp.{word}")
            continue
        home = _LONG if c["imports"] == "long" and word not in _HOMES else home
        known = "FSDP" if word == "FullyShardedDataParallel" else word
        lines.append(f"from {home} import {word}" + (f" as {known}" if known != word else ""))
        text = text.replace(f"@{word}", known)
    if c["imports"] == "module":
        lines.insert(0, "import torch.distributed.fsdp as fsdp")
    model, optimizer = NAMES.get(c["shape"], ("model", "optimizer"))
    text = _word(text, "M", model)
    text = _word(text, "O", optimizer)
    text = _SETTING.sub(r"config.\1", text) if c["config"] else text
    text = _word(text, "TIED", str(bool(c["tied"])))
    return text.replace("{imports}", "\n".join(lines))


def _word(text: str, word: str, by: str) -> str:
    return re.sub(rf"(?<![\w.'\"]){word}(?![\w'\"])", by, text)
